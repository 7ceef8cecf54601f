"""Per-example gradient norms of any model, for tensors in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn

from remanence.batches import Batch, as_targets, check_targets, placed, rows, size_of
from remanence.errors import InputError, NumericalError
from remanence.gradients.engine_memory import remembering
from remanence.gradients.evaluation_mode import evaluating
from remanence.gradients.norm_engine import NormEngine
from remanence.gradients.precision import HALVES
from remanence.losses import ExampleLoss, loss_function


@overload
def example_gradient_norms(
    model: nn.Module,
    inputs: Batch,
    targets: Batch,
    *,
    loss: str | ExampleLoss = ...,
    parameters: Iterable[str | Tensor] | None = ...,
    batch_size: int | Literal["auto"] = ...,
    dtype: torch.dtype | None = ...,
    squared: bool = ...,
    by_parameter: Literal[False] = ...,
) -> Tensor: ...


@overload
def example_gradient_norms(
    model: nn.Module,
    inputs: Batch,
    targets: Batch,
    *,
    loss: str | ExampleLoss = ...,
    parameters: Iterable[str | Tensor] | None = ...,
    batch_size: int | Literal["auto"] = ...,
    dtype: torch.dtype | None = ...,
    squared: bool = ...,
    by_parameter: Literal[True],
) -> dict[str, Tensor]: ...


def example_gradient_norms(
    model: nn.Module,
    inputs: Batch,
    targets: Batch,
    *,
    loss: str | ExampleLoss = "cross_entropy",
    parameters: Iterable[str | Tensor] | None = None,
    batch_size: int | Literal["auto"] = "auto",
    dtype: torch.dtype | None = None,
    squared: bool = False,
    by_parameter: bool = False,
) -> Tensor | dict[str, Tensor]:
    """The exact Euclidean norm of every example's loss gradient, in evaluation mode.

    Args:
        model: any module; its mode, gradients and buffers are left as they were.
        inputs: a tensor with one row per example, or a tuple or dict of such tensors.
        targets: what the loss compares the outputs with; tensors, or an array or list of numbers.
        loss: a name, or a function (outputs, targets) -> one loss per example.
        parameters: names or tensors to differentiate by; all that require a gradient when None.
        batch_size: examples at a time; results do not depend on it beyond rounding.
        dtype: precision to compute in: a copy of the model for float32 and float64, autocast for half precision.
        squared: return squared norms.
        by_parameter: a dict with the norms of each parameter, instead of their total.

    Returns:
        Tensor[n], or a dict from parameter name to Tensor[n].
    """
    engine = prepare_engine(model, loss, parameters, dtype, by_parameter)
    inputs, targets = checked_batch(engine, inputs, targets, dtype)
    parts = []
    with evaluating(engine.model), remembering(engine):
        for start, stop in _batch_ranges(engine, inputs, targets, batch_size):
            table = engine.squared_norms(rows(inputs, start, stop), rows(targets, start, stop))
            refuse_infinite(table, range(start, stop))
            parts.append(table)
    table = {name: torch.cat([part[name] for part in parts]) for name in engine.parameters}
    if by_parameter:
        return {name: _norms(row, engine.dtype, squared) for name, row in table.items()}
    return total_norms(table, engine.dtype, squared)


def prepare_engine(
    model: nn.Module,
    loss: str | ExampleLoss,
    parameters: Iterable[str | Tensor] | None,
    dtype: torch.dtype | None,
    by_parameter: bool,
) -> NormEngine:
    """The engine for a model, or for a copy of it in `dtype`; autocast for half precision."""
    half = dtype if dtype in HALVES else None
    if dtype is not None and half is None and any(p.dtype != dtype for p in model.parameters()):
        keys = None if parameters is None else list(choose_parameters(model, parameters))
        model, parameters = copy.deepcopy(model).to(dtype), keys
    return NormEngine(model, loss_function(loss), choose_parameters(model, parameters), half, by_parameter)


def checked_batch(
    engine: NormEngine, inputs: Batch, targets: Batch, dtype: torch.dtype | None
) -> tuple[Batch, Batch]:
    """Inputs and as many targets, on the model's device, in `dtype`; half precision is left to autocast."""
    targets = as_targets(targets)
    check_targets(targets, size_of(inputs))
    cast = None if dtype in HALVES else dtype
    return placed(inputs, engine.model, cast), placed(targets, engine.model, cast)


def requested_batch_size(batch_size: int | Literal["auto"]) -> int | None:
    """The batch size that the caller requested, None for "auto"."""
    if isinstance(batch_size, str) and batch_size == "auto":
        return None
    if isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool) and batch_size > 0:
        return int(batch_size)
    raise InputError(f"`batch_size` must be 'auto' or a whole number above 0; got {batch_size!r}.")


def _batch_ranges(
    engine: NormEngine, inputs: Batch, targets: Batch, batch_size: int | Literal["auto"]
) -> Iterator[tuple[int, int]]:
    n = size_of(inputs)
    step = requested_batch_size(batch_size) or engine.fitting_batch_size(inputs, targets)
    for start in range(0, n, step):
        yield start, min(n, start + step)


def refuse_infinite(table: Mapping[str, Tensor], ids: Sequence[Any]) -> None:
    """Raise for NaN and infinity, naming the examples and the layer."""
    bad = ~torch.stack(list(table.values())).isfinite()
    if not bool(bad.any()):
        return
    bad_ids = [ids[int(i)] for i in bad.any(0).nonzero().flatten()]
    parameter = list(table)[int(bad.any(1).nonzero()[0])]
    shown = ", ".join(str(i) for i in bad_ids[:10]) + (", …" if len(bad_ids) > 10 else "")
    raise NumericalError(
        f"Gradients must be finite; at `{parameter}` those of {len(bad_ids)} examples are not (ids {shown}). "
        "Has training diverged, or does the loss take the logarithm of zero?"
    )


def total_norms(table: Mapping[str, Tensor], dtype: torch.dtype, squared: bool) -> Tensor:
    """The norm over all parameters, in at least float32."""
    return _norms(torch.stack(list(table.values())).sum(0), dtype, squared)


def _norms(row: Tensor, dtype: torch.dtype, squared: bool) -> Tensor:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return (row if squared else row.sqrt()).to(wide)


def choose_parameters(model: nn.Module, parameters: Iterable[str | Tensor] | None) -> dict[str, Tensor]:
    """The parameters to differentiate by, by name; tied ones once, under the first of their names."""
    named: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if parameters is None:
        if not named:
            raise InputError("The model must have a parameter that requires a gradient; it has none.")
        return _real(named)
    by_name = dict(model.named_parameters(remove_duplicate=False))
    first = {id(p): name for name, p in named.items()}
    chosen: dict[str, Tensor] = {}
    for selected in parameters:
        tensor = by_name.get(selected) if isinstance(selected, str) else selected
        name = first.get(id(tensor))
        if name is None:
            shown = selected if isinstance(selected, str) else f"of shape {tuple(selected.shape)}"
            raise InputError(
                f"All of `parameters` must belong to the model and require a gradient; {shown} does not."
            )
        chosen[name] = named[name]
    if not chosen:
        raise InputError("`parameters` must name at least one parameter; got none.")
    return _real(chosen)


def _real(chosen: dict[str, Tensor]) -> dict[str, Tensor]:
    for name, parameter in chosen.items():
        if parameter.is_complex():
            raise InputError(
                f"Parameters must be real numbers; `{name}` is complex. Keep its real and imaginary part as "
                "one real parameter and join them by torch.view_as_complex."
            )
    return chosen
