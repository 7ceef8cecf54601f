"""Track the uses of parameters inside an ordinary training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from remanence.errors import InputError
from remanence.gradients.accumulator import NormAccumulator
from remanence.gradients.layers.rule import NodeInputs, ParameterUse
from remanence.gradients.layout import DivergedError
from remanence.gradients.precision import backward_without_autocast
from remanence.gradients.recording import Call, tensor_leaves
from remanence.gradients.tracker import UseTracker

AddAndSum = Callable[[ParameterUse], dict[str, Tensor]]
"""Computes a use's squared norms and returns the batch's gradient for each role."""


class InFlightTracker(UseTracker):
    """Leaves the graph as it is: parameters get their gradients as in any training step."""

    def __init__(self, *args: Any, share: bool, accumulator: NormAccumulator) -> None:
        super().__init__(*args)
        self.share, self.accumulator = share, accumulator
        self.on_gradient = no_fallback()(self.on_gradient)
        # the step's own graph is gone when derived tensors are differentiated, so they get their own
        self.roots = {key: tensor.detach().requires_grad_() for key, tensor in self.tracked.items()}

    def on_call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        with no_fallback():
            return super().on_call(func, args, kwargs)

    def _general_use(self, call: Call, args: Any, kwargs: dict[str, Any]) -> ParameterUse:
        """Replaying a call that draws random numbers would draw others."""
        use = super()._general_use(call, args, kwargs)
        if call.is_random:
            layer = self.layer_of(use, self.accumulator.names)
            raise InputError(
                f"A layer without a rule of its own must not draw random numbers in flight; `{layer}` does. "
                "Set its dropout to 0, or use example_gradient_norms between steps."
            )
        return use

    def _run(
        self, use: ParameterUse, args: Any, kwargs: dict[str, Any], cut: tuple[Any, dict[str, Any]]
    ) -> Any:
        """As written, or, where the rule builds gradients anyway, through a node that passes on their sum."""
        if self.share and use.call.sole_use and use.rule.builds_gradients(use):
            output = use.call.func(*cut[0], **cut[1])
            parameters = [self.tracked[source] for source in use.sources.values()]
            return SumGradients.apply(output, use, self.accumulator.add_and_sum, *parameters)  # type: ignore[no-untyped-call]
        return use.call.func(*args, **kwargs)

    def _fused(self, use: ParameterUse, live: Tensor, cut: tuple[Any, dict[str, Any]]) -> Tensor | None:
        """Only where work may be shared and no other argument needs a gradient."""
        if not (self.share and use.call.sole_use) or _other_gradients(live, *cut):
            return None
        parameters = [self.tracked[source] for source in use.sources.values()]
        return use.rule.fused(use, NodeInputs(live, self.anchor, self.on_gradient, parameters))

    def _expanded(self, result: Any) -> Any:
        return result

    def _rederived(self, call: Call, args: Any, kwargs: dict[str, Any], result: Any) -> list[Tensor]:
        """Computed again from copies of the parameters."""
        twins = {**self.roots, **self.derived}
        again = tree_map_only(Tensor, lambda t: twins.get(id(t), t), (args, kwargs))
        with torch.enable_grad():
            return tensor_leaves(call.func(*again[0], **again[1]))

    def _hooked(self, use: ParameterUse, k: int, output: Tensor) -> Tensor:
        is_summed = type(output.grad_fn).__name__ == "SumGradientsBackward"
        return output if is_summed else super()._hooked(use, k, output)


def _other_gradients(live: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether arguments other than the input require a gradient."""
    values = (*args, *kwargs.values())
    return any(isinstance(t, Tensor) and t.requires_grad and t is not live for t in values)


class SumGradients(torch.autograd.Function):
    """The identity on an output; backward, the parameters get the sum of their per-example gradients."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, use: ParameterUse, add: AddAndSum, *parameters: Tensor) -> Tensor:
        ctx.use, ctx.add_and_sum = use, add
        ctx.roles = tuple(use.sources)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    @backward_without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        ctx.use.grads[0] = grad
        sums = ctx.add_and_sum(ctx.use)
        return grad, None, None, *(sums[role] for role in ctx.roles)


@contextmanager
def no_fallback() -> Iterator[None]:
    """Turn `DivergedError` into an error for the caller: in flight, the loop cannot be used instead."""
    try:
        yield
    except DivergedError as problem:
        raise InputError(
            f"The forward pass must run the same calls for a batch as for one example ({problem}); "
            "in flight the loop cannot be used instead. Use example_gradient_norms between steps."
        ) from problem
