"""Gradient norm, confidence and error norm of every example at the current weights: one row of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.data import Examples
from remanence.gradients.evaluation_mode import evaluating
from remanence.gradients.example_norms import prepare_engine, refuse_infinite, total_norms
from remanence.gradients.losses import ExampleLoss
from remanence.gradients.norm_engine import NormEngine
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.types import Ids, Mechanism, Trace

Row = dict[str, NDArray[np.float32]]
"""The statistics of all examples, by name."""
_NAMES = ("norms", "confidence", "error")


def example_statistics(
    model: nn.Module,
    examples: Examples,
    *,
    loss: str | ExampleLoss = "cross_entropy",
    ranks: Ranks = SINGLE_PROCESS,
) -> Row:
    """Gradient norm, confidence and error norm of every example, in evaluation mode.

    Args:
        model: the model; not changed.
        examples: the examples.
        loss: name of the loss, or a function (outputs, targets) -> one loss per example.
        ranks: the processes that share the work.
    """
    share = ranks.share(torch.arange(len(examples)))
    device = next(model.parameters()).device
    engine = prepare_engine(model, loss, None, None, by_parameter=False)
    parts = [torch.zeros(len(_NAMES), 0)]
    with evaluating(model):
        for rows in torch.split(share, _batch_size(engine, examples, device)):
            inputs, labels = examples.inputs[rows].to(device), examples.labels[rows].to(device)
            with _captured_outputs(model) as outputs:
                table = engine.squared_norms(inputs, labels)
            refuse_infinite(table, examples.ids[rows.numpy()].tolist())
            norms = total_norms(table, engine.dtype, squared=False).float()
            confidence, error = confidence_and_error(_logits(model, inputs, outputs), labels)
            parts.append(torch.stack([norms, confidence, error]).cpu())
    values = torch.cat(parts, dim=1).numpy()
    return {name: ranks.gather(values[i], share.numpy(), len(examples)) for i, name in enumerate(_NAMES)}


def trace_from_rows(
    ids: Ids,
    steps: Sequence[int],
    rows: Sequence[Row],
    mechanism: Mechanism,
    provenance: Mapping[str, str],
) -> Trace:
    """The trace of the statistics at several steps."""
    tables: dict[str, Any] = {name: np.stack([row[name] for row in rows]) for name in _NAMES}
    return Trace(ids, np.array(steps, dtype=np.int64), mechanism=mechanism, provenance=provenance, **tables)


def _batch_size(engine: NormEngine, examples: Examples, device: torch.device) -> int:
    return engine.fitting_batch_size(examples.inputs[:1].to(device), examples.labels[:1].to(device))


def error_norms(model: nn.Module, examples: Examples, ranks: Ranks = SINGLE_PROCESS) -> NDArray[np.float32]:
    """The error norms of a few examples, from one forward pass."""
    share = ranks.share(torch.arange(len(examples)))
    device = next(model.parameters()).device
    with evaluating(model), torch.no_grad():
        logits = model(examples.inputs[share].to(device))
    _, error = confidence_and_error(logits, examples.labels[share].to(device))
    return ranks.gather(error.cpu().numpy(), share.numpy(), len(examples))


def confidence_and_error(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax probability of the true class, and distance between softmax output and one-hot label (EL2N)."""
    probabilities = logits.float().softmax(dim=1)
    truth = nn.functional.one_hot(labels, probabilities.shape[1])
    return (probabilities * truth).sum(dim=1), (probabilities - truth).norm(dim=1)


@contextmanager
def _captured_outputs(model: nn.Module) -> Iterator[list[Tensor]]:
    """Outputs of the model during the block: the norm pass computes them, so they need no second forward pass."""
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs.append(output)  # no tensor operations here: the norm pass would track them

    hook = model.register_forward_hook(keep)
    try:
        yield outputs
    finally:
        hook.remove()


def _logits(model: nn.Module, inputs: Tensor, captured: list[Tensor]) -> Tensor:
    """Outputs for these inputs: captured ones if the norm pass ran the whole batch, else from a forward pass."""
    complete = [output for output in captured if len(output) == len(inputs)]
    if len(inputs) > 2 and complete:
        return complete[-1].detach()
    with evaluating(model), torch.no_grad():
        logits: Tensor = model(inputs)
    return logits
