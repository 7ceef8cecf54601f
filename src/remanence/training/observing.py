"""One pass over the examples: gradient norm, confidence and error norm of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.data import Examples
from remanence.gradients.evaluation_mode import evaluating
from remanence.gradients.example_norms import prepare_engine, refuse_infinite, total_norms
from remanence.gradients.losses import ExampleLoss
from remanence.gradients.norm_engine import NormEngine
from remanence.training.ranks import ALONE, Ranks

Row = dict[str, NDArray[np.float32]]
COLUMNS = ("norms", "confidence", "error")


def observe(
    model: nn.Module, examples: Examples, *, loss: str | ExampleLoss = "cross_entropy", ranks: Ranks = ALONE
) -> Row:
    """Norm, confidence and error of every example at this moment, in evaluation mode; the ranks share the work."""
    mine = ranks.share(torch.arange(len(examples)))
    device = next(model.parameters()).device
    engine = prepare_engine(model, loss, None, None, by_parameter=False)
    parts = [torch.zeros(len(COLUMNS), 0)]
    with evaluating(model):
        for rows in torch.split(mine, _batch_size(engine, examples, device)):
            inputs, labels = examples.inputs[rows].to(device), examples.labels[rows].to(device)
            with _watching(model) as seen:
                table = engine.squared_norms(inputs, labels)
            refuse_infinite(table, examples.ids[rows.numpy()].tolist())
            norms = total_norms(table, engine.dtype, squared=False).float()
            found = confidence_and_error(_logits(model, inputs, seen), labels)
            parts.append(torch.stack([norms, *found]).cpu())
    found_rows = torch.cat(parts, dim=1).numpy()
    return {name: ranks.gather(found_rows[i], mine.numpy(), len(examples)) for i, name in enumerate(COLUMNS)}


def _batch_size(engine: NormEngine, examples: Examples, device: torch.device) -> int:
    return engine.fitting_batch_size(examples.inputs[:1].to(device), examples.labels[:1].to(device))


def observe_errors(model: nn.Module, examples: Examples, ranks: Ranks = ALONE) -> NDArray[np.float32]:
    """The error norm of each of a few examples, by a forward pass alone."""
    mine = ranks.share(torch.arange(len(examples)))
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        logits = model(examples.inputs[mine].to(device))
    _, error = confidence_and_error(logits, examples.labels[mine].to(device))
    return ranks.gather(error.cpu().numpy(), mine.numpy(), len(examples))


def confidence_and_error(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Probability of the true class, and distance between softmax and one-hot label (EL2N)."""
    probabilities = logits.float().softmax(dim=1)
    truth = nn.functional.one_hot(labels, probabilities.shape[1])
    return (probabilities * truth).sum(dim=1), (probabilities - truth).norm(dim=1)


@contextmanager
def _watching(model: nn.Module) -> Iterator[list[Tensor]]:
    """What the model puts out meanwhile: the norm pass runs it anyway, so its outputs need no second pass."""
    seen: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            seen.append(output)  # and not a tensor operation more: the norm pass follows every one of them

    hook = model.register_forward_hook(keep)
    try:
        yield seen
    finally:
        hook.remove()


def _logits(model: nn.Module, inputs: Tensor, seen: list[Tensor]) -> Tensor:
    """The outputs for these inputs: those seen, if the norm pass ran the batch whole; otherwise one more pass."""
    whole = [output for output in seen if len(output) == len(inputs)]
    if len(inputs) > 2 and whole:
        return whole[-1].detach()
    with evaluating(model), torch.no_grad():
        logits: Tensor = model(inputs)
    return logits
