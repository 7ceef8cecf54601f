"""Per-example gradient norms of any model: the public door."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, overload

import torch
from torch import Tensor, nn

from remanence.errors import InputError
from remanence.gradients.batches import Batch, placed, rows, size_of
from remanence.gradients.losses import ExampleLoss, resolve
from remanence.gradients.reference import loop_squared_norms


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
        targets: what the loss compares the outputs with.
        loss: a name, or a function (outputs, targets) -> one loss an example.
        parameters: names or tensors to differentiate by; all that require a gradient when None.
        batch_size: examples at a time; results do not depend on it beyond rounding.
        dtype: compute in another precision.
        squared: squared norms instead.
        by_parameter: a dict with one row of norms for each parameter, instead of their total.

    Returns:
        Tensor[n], or a dict from parameter name to Tensor[n].
    """
    loss = resolve(loss)
    n = size_of(inputs)
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)
    chosen = choose(model, parameters)
    step = n if batch_size == "auto" else batch_size
    inputs, targets = placed(inputs, model, dtype), placed(targets, model, dtype)
    with evaluating(model):
        parts = [
            loop_squared_norms(model, rows(inputs, i, i + step), rows(targets, i, i + step), loss, chosen)
            for i in range(0, n, step)
        ]
    table = {name: torch.cat([part[name] for part in parts]) for name in chosen}
    kind = dtype or torch.float32
    if by_parameter:
        return {name: (row if squared else row.sqrt()).to(kind) for name, row in table.items()}
    total = torch.stack(list(table.values())).sum(0)
    return (total if squared else total.sqrt()).to(kind)


def choose(model: nn.Module, parameters: Iterable[str | Tensor] | None) -> dict[str, Tensor]:
    """The parameters to differentiate by, by name; tied ones once."""
    named: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if parameters is None:
        if not named:
            raise InputError("The model must have a parameter that requires a gradient; it has none.")
        return named
    chosen: dict[str, Tensor] = {}
    for wanted in parameters:
        hits = [n for n, p in named.items() if n == wanted or p is wanted]
        if not hits:
            shown = wanted if isinstance(wanted, str) else f"of shape {tuple(wanted.shape)}"
            raise InputError(
                f"All of `parameters` must belong to the model and require a gradient; {shown} does not."
            )
        chosen[hits[0]] = named[hits[0]]
    if not chosen:
        raise InputError("`parameters` must name at least one parameter; got none.")
    return chosen


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time being, every module's own mode restored after."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
