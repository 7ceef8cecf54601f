"""Per-example gradient norms of any model: the public door."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from remanence.errors import InputError, NumericalError
from remanence.gradients.batches import Batch, as_targets, check_targets, placed, rows, size_of
from remanence.gradients.budget import asked_batch, fitting_batch
from remanence.gradients.engine import Engine
from remanence.gradients.losses import ExampleLoss, resolve


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
    """The Euclidean norm of every example's loss gradient, exact, in evaluation mode.

    Args:
        model: any module; its mode, gradients and buffers are left as they were.
        inputs: a tensor with one row an example, or a tuple or dict of such tensors.
        targets: what the loss compares the outputs with; tensors, or an array or list of numbers.
        loss: a name, or a function (outputs, targets) -> one loss an example.
        parameters: names or tensors to differentiate by; all that require a gradient when None.
        batch_size: examples at a time; results do not depend on it beyond rounding.
        dtype: compute in another precision: a copy of the model for wide ones, autocast for half ones.
        squared: squared norms instead.
        by_parameter: a dict with one row of norms for each parameter, instead of their total.

    Returns:
        Tensor[n], or a dict from parameter name to Tensor[n].
    """
    engine = prepare(model, loss, parameters, dtype, by_parameter)
    targets = as_targets(targets)
    check_targets(targets, size_of(inputs))
    parts = []
    with evaluating(engine.model):
        inputs, targets = (
            placed(inputs, engine.model, wide(dtype)),
            placed(targets, engine.model, wide(dtype)),
        )
        for start, stop in spans(engine, inputs, targets, batch_size):
            table = engine.squared_norms(rows(inputs, start, stop), rows(targets, start, stop))
            refuse_infinite(table, range(start, stop))
            parts.append(table)
    table = {name: torch.cat([part[name] for part in parts]) for name in engine.parameters}
    if by_parameter:
        return {name: _out(row, engine.dtype, squared) for name, row in table.items()}
    return total_norms(table, engine.dtype, squared)


def prepare(
    model: nn.Module,
    loss: str | ExampleLoss,
    parameters: Iterable[str | Tensor] | None,
    dtype: torch.dtype | None,
    by_parameter: bool,
) -> Engine:
    """The engine for a model, or for a copy of it in the wanted precision; autocast for halves."""
    half = dtype if dtype in (torch.float16, torch.bfloat16) else None
    if wide(dtype) is not None and any(p.dtype != dtype for p in model.parameters()):
        keys = None if parameters is None else list(choose(model, parameters))
        model, parameters = copy.deepcopy(model).to(dtype), keys
    return Engine(model, resolve(loss), choose(model, parameters), half, by_parameter)


def wide(dtype: torch.dtype | None) -> torch.dtype | None:
    """The precision that inputs are cast to: halves are left to autocast."""
    return None if dtype in (torch.float16, torch.bfloat16) else dtype


def spans(
    engine: Engine, inputs: Batch, targets: Batch, batch_size: int | Literal["auto"]
) -> Iterator[tuple[int, int]]:
    """Ranges of examples, of a size asked for or one that fits in memory."""
    n, step = size_of(inputs), asked_batch(batch_size)
    if step is None:
        script = engine.rehearsed(inputs, targets).script
        step = fitting_batch(script, engine.dtype.itemsize, engine.device)
    for start in range(0, n, step):
        yield start, min(n, start + step)


def refuse_infinite(table: Mapping[str, Tensor], ids: Sequence[Any]) -> None:
    """NaN and infinity are errors that name the examples and the layer."""
    bad = ~torch.stack(list(table.values())).isfinite()
    if not bool(bad.any()):
        return
    who = [ids[int(i)] for i in bad.any(0).nonzero().flatten()]
    where = list(table)[int(bad.any(1).nonzero()[0])]
    shown = ", ".join(str(i) for i in who[:10]) + (", …" if len(who) > 10 else "")
    raise NumericalError(
        f"Gradients must be finite; at `{where}` those of {len(who)} examples are not (ids {shown}). "
        "Has training diverged, or does the loss take the logarithm of zero?"
    )


def total_norms(table: Mapping[str, Tensor], dtype: torch.dtype, squared: bool) -> Tensor:
    """The norm over all parameters, in at least float32."""
    return _out(torch.stack(list(table.values())).sum(0), dtype, squared)


def _out(row: Tensor, dtype: torch.dtype, squared: bool) -> Tensor:
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    return (row if squared else row.sqrt()).to(kind)


def choose(model: nn.Module, parameters: Iterable[str | Tensor] | None) -> dict[str, Tensor]:
    """The parameters to differentiate by, by name; tied ones once, under the first of their names."""
    named: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if parameters is None:
        if not named:
            raise InputError("The model must have a parameter that requires a gradient; it has none.")
        return _real(named)
    every = dict(model.named_parameters(remove_duplicate=False))
    first = {id(p): name for name, p in named.items()}
    chosen: dict[str, Tensor] = {}
    for wanted in parameters:
        tensor = every.get(wanted) if isinstance(wanted, str) else wanted
        name = first.get(id(tensor))
        if name is None:
            shown = wanted if isinstance(wanted, str) else f"of shape {tuple(wanted.shape)}"
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


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time being; every module's own mode and its buffers are restored after."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with keeping_buffers(model):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def keeping_buffers(model: nn.Module) -> Iterator[None]:
    """Buffers are put back after, replaced ones too."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, name, buffer, before in buffers:
            module._buffers[name] = buffer
            if not torch.equal(buffer, before):  # counted up in the forward pass, say
                with torch.no_grad():
                    buffer.copy_(before)
