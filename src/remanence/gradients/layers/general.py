"""The general rule: any function of parameters, differentiated one example at a time.

All examples at once through `torch.func`, or in a loop for functions that it does not support.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from remanence.gradients.layers.rule import ByRole, ParameterUse, Roles, Rule
from remanence.gradients.layout import DivergedError


class GeneralRule(Rule):
    """Replays a recorded call as it was for a batch of one, with each example's own slices."""

    def __init__(self) -> None:
        self.unmappable: set[Any] = set()
        """Functions that torch.func could not map over examples."""

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        if use.call.func not in self.unmappable:
            try:
                return self._mapped(use, roles, start, stop)
            except (RuntimeError, NotImplementedError, ValueError, TypeError):
                self.unmappable.add(use.call.func)
        try:
            singles = [self._single(use, roles, i) for i in range(start, stop)]
        except RuntimeError as problem:
            name = getattr(use.call.func, "__name__", use.call.func)
            raise DivergedError(f"{name} cannot be taken apart into examples") from problem
        return {role: torch.stack([single[role] for single in singles]) for role in roles}

    def _mapped(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        sliced = {k: v[start:stop] for k, v in _example_leaves(use).items()}
        grads = {k: v[start:stop] for k, v in _example_grads(use).items()}

        def one(own: dict[str, Tensor], cotangents: dict[int, Tensor]) -> dict[str, Tensor]:
            def outputs(parameters: dict[str, Tensor]) -> dict[int, Tensor]:
                replayed = _replay(use, {**own, **parameters})
                return {k: replayed[k] for k in cotangents}

            pull = torch.func.vjp(outputs, {role: use.args[role] for role in roles})[1]
            (gradients,) = pull(cotangents)
            return gradients  # type: ignore[no-any-return]

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            return torch.func.vmap(one)(sliced, grads)

    def _single(self, use: ParameterUse, roles: tuple[str, ...], i: int) -> dict[str, Tensor]:
        own = {k: v[i] for k, v in _example_leaves(use).items()}
        grads = {k: v[i] for k, v in _example_grads(use).items()}
        with torch.enable_grad():
            parameters = {role: use.args[role].detach().requires_grad_() for role in roles}
            outputs = _replay(use, {**own, **parameters})
            gradients = torch.autograd.grad(
                [outputs[k] for k in grads],
                list(parameters.values()),
                list(grads.values()),
                allow_unused=True,
            )
        return {
            role: torch.zeros_like(use.args[role]) if gradient is None else gradient
            for role, gradient in zip(roles, gradients, strict=True)
        }


def _example_leaves(use: ParameterUse) -> dict[str, Tensor]:
    """Arguments that differ between examples, as [n, *one]."""
    return {
        str(k): layout.split(use.args[str(k)], use.n)
        for k, layout in use.call.layouts.items()
        if layout is not None
    }


def _example_grads(use: ParameterUse) -> dict[int, Tensor]:
    """Gradients of the outputs that the loss depends on, as [n, *one]."""
    return {
        k: layout.split(grad, use.n)
        for k, (grad, layout) in enumerate(zip(use.grads, use.call.out_layouts, strict=True))
        if grad is not None and layout is not None
    }


def _replay(use: ParameterUse, tensors: dict[str, Tensor]) -> list[Any]:
    """The outputs of the call with these tensors, every other argument as it was for a batch of one."""
    leaves = [
        tensors.get(str(k), use.args.get(str(k), literal)) for k, literal in enumerate(use.call.literals)
    ]
    args, kwargs = tree_unflatten(leaves, use.call.spec)
    return [leaf for leaf in tree_flatten(use.call.func(*args, **kwargs))[0] if isinstance(leaf, Tensor)]
