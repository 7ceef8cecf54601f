"""Gradient norm, confidence and error norm of every example at the current weights: one row of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from remanence.batches import call, device_of, moved, size_of, tensors_of
from remanence.data import Examples
from remanence.gradients.engine_memory import remembering
from remanence.gradients.evaluation_mode import evaluating
from remanence.gradients.example_norms import prepare_engine, refuse_infinite, total_norms
from remanence.gradients.norm_engine import NormEngine
from remanence.losses import Readout, class_logits, cross_entropy, logits_of
from remanence.machine import norm_constants
from remanence.training.interpolation import along_steps, interpolate_norms
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.types import Ids, Mechanism, Trace

Row = dict[str, NDArray[Any]]
"""The statistics of all examples, by name: `STATISTICS`, and `moments` where they are of different steps."""
STATISTICS = ("norms", "confidence", "error")


def example_statistics(
    model: nn.Module,
    examples: Examples,
    *,
    ranks: Ranks = SINGLE_PROCESS,
) -> Row:
    """Gradient norm, confidence and error norm of every example, in evaluation mode.

    Args:
        model: the model; not changed.
        examples: the examples, which bring their loss.
        ranks: the processes that share the work.
    """
    share = ranks.share(torch.arange(len(examples)))
    device = device_of(model)
    engine = prepare_engine(model, examples.readout.loss, None, None, by_parameter=False)
    parts = [torch.zeros(len(STATISTICS), 0)]
    with evaluating(model), remembering(engine):
        size = _batch_size(engine, examples, device)
        for rows, batch in zip(torch.split(share, size), examples.batches(size, share), strict=True):
            inputs, labels = moved(batch, device)
            with captured_outputs(model) as outputs:
                table = engine.squared_norms(inputs, labels)
            refuse_infinite(table, examples.ids[rows.numpy()].tolist())
            norms = total_norms(table, engine.dtype, squared=False).float()
            confidence, error = confidence_and_error(
                examples.readout, _outputs(model, inputs, outputs, len(rows)), labels
            )
            parts.append(torch.stack([norms, confidence, error]).cpu())
    values = torch.cat(parts, dim=1).numpy()
    return {name: ranks.gather(values[i], share.numpy(), len(examples)) for i, name in enumerate(STATISTICS)}


def trace_from_rows(
    ids: Ids,
    steps: Sequence[int],
    rows: Sequence[Row],
    mechanism: Mechanism,
    provenance: Mapping[str, str],
) -> Trace:
    """The trace of the statistics at several steps; norms that are NaN are interpolated, and marked as such."""
    at = np.array(steps, dtype=np.int64)
    tables: dict[str, Any] = {name: np.stack([row[name] for row in rows]) for name in STATISTICS}
    measured = ~np.isnan(tables["norms"])
    if not measured.all():
        tables["norms"] = interpolate_norms(tables["norms"], tables["error"], at).astype(np.float32)
        tables |= {name: along_steps(tables[name], at).astype(np.float32) for name in ("confidence", "error")}
        tables["measured"] = measured
    if all("moments" in row for row in rows):
        moments = np.stack([row["moments"] for row in rows])
        tables["moments"] = np.where(moments < 0, at[:, None], moments)
    noted = {**provenance, "norm_constants": norm_constants().label}
    return Trace(ids, at, mechanism=mechanism, provenance=noted, **tables)


def _batch_size(engine: NormEngine, examples: Examples, device: torch.device) -> int:
    return engine.fitting_batch_size(*moved(examples.batch(torch.zeros(1, dtype=torch.int64)), device))


def error_norms(model: nn.Module, examples: Examples, ranks: Ranks = SINGLE_PROCESS) -> NDArray[np.float32]:
    """The error norms of a few examples, from one forward pass."""
    share = ranks.share(torch.arange(len(examples)))
    device = device_of(model)
    inputs, labels = moved(examples.batch(share), device)
    with evaluating(model), torch.no_grad():
        outputs = call(model, inputs)
    _, error = confidence_and_error(examples.readout, outputs, labels)
    return ranks.gather(error.cpu().numpy(), share.numpy(), len(examples))


def confidence_and_error(readout: Readout, outputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Softmax probability of the true class, and distance between softmax output and one-hot label (EL2N).

    That distance is the length of the gradient of the cross-entropy with respect to the logits. For other losses, the
    error is the length of their gradient with respect to the outputs, and the confidence is exp(-loss).
    """
    logits = class_logits(outputs, labels)
    if logits is None or readout.loss is not cross_entropy:
        return _confidence_and_error_of_loss(readout, outputs, labels)
    probabilities = logits.detach().float().softmax(dim=1)
    truth = nn.functional.one_hot(labels, probabilities.shape[1])
    return (probabilities * truth).sum(dim=1), (probabilities - truth).norm(dim=1)


def _confidence_and_error_of_loss(readout: Readout, outputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    leaves, structure = tree_flatten(outputs)
    if not any(isinstance(leaf, Tensor) for leaf in leaves):  # an object that torch cannot take apart
        leaves, structure = tree_flatten(logits_of(outputs))
    fresh = [
        leaf.detach().float().requires_grad_()
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
        else leaf
        for leaf in leaves
    ]
    differentiable = [leaf for leaf in fresh if isinstance(leaf, Tensor) and leaf.requires_grad]
    n = size_of(labels)
    with torch.enable_grad():
        losses = readout.losses(tree_unflatten(fresh, structure), labels, n)
        gradients = torch.autograd.grad(losses.sum(), differentiable, materialize_grads=True)
    squares = [part.reshape(n, -1).square().sum(dim=1) for part in gradients if part.shape[:1] == (n,)]
    return (-losses.detach().float()).exp(), torch.stack(squares).sum(dim=0).sqrt()


@contextmanager
def captured_outputs(model: nn.Module) -> Iterator[list[Any]]:
    """Outputs of the model during the block: the norm pass computes them, so they need no second forward pass."""
    outputs: list[Any] = []

    def keep(_module: nn.Module, _inputs: object, output: object) -> None:
        outputs.append(output)  # no tensor operations here: the norm pass would track them

    hook = model.register_forward_hook(keep)
    try:
        yield outputs
    finally:
        hook.remove()


def _outputs(model: nn.Module, inputs: Any, captured: list[Any], n: int) -> Any:
    """Outputs for these inputs: captured ones if the norm pass ran the whole batch, else from a forward pass."""
    complete = [outputs for outputs in captured if {len(part) for part in tensors_of(outputs)} == {n}]
    if n > 2 and complete:
        return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, complete[-1])
    with evaluating(model), torch.no_grad():
        return call(model, inputs)
