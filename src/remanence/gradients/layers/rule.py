"""One use of parameters in a forward pass, and the contract of a rule that knows its per-example gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.layers.gram_blocks import GramCache
from remanence.gradients.layout import Layout
from remanence.gradients.precision import HALVES
from remanence.gradients.recording import Call

Functions = tuple[Callable[..., Any], ...]
Arguments = Mapping[str, Any]
Roles = tuple[str, ...]
ByRole = dict[str, Tensor]

CHUNK_BYTES = 4 << 20
"""Size of the per-example gradients that are in memory at a time: a core's share of the cache."""
SUM_LENGTH = 4608
"""Numbers summed in one go: torch's sums lose digits in proportion; sizes of 3 × 3 kernels divide by it."""


@dataclass(eq=False)
class ParameterUse:
    """A call that used parameters, and later the gradient of its output.

    Args:
        rule: computes its per-example gradients.
        call: the recorded call.
        args: the call's arguments by name, detached from any graph.
        n: number of examples.
        layout: where input and output keep the examples.
        sources: for each argument that is a parameter, the key of the parameter.
        grads: gradients of the outputs, filled in by the backward pass.
        saved: what the rule keeps between calls.
        gram_cache: Gram matrices that neighboring uses have in common.
    """

    rule: Rule
    call: Call
    args: dict[str, Any]
    n: int
    layout: Layout
    sources: dict[str, int]
    grads: list[Tensor | None] = field(default_factory=lambda: [None])
    saved: Any = None
    gram_cache: GramCache = field(default_factory=GramCache)

    @property
    def grad(self) -> Tensor:
        """The output's gradient, in at least float32."""
        grad = self.grads[0]
        assert grad is not None  # only uses that a gradient reached are evaluated
        return _at_least_float32(grad)

    @property
    def input(self) -> Tensor:
        """The call's input, in at least float32."""
        return _at_least_float32(self.args["input"])

    def split(self, tensor: Tensor) -> Tensor:
        """A view of an input-like or output-like tensor as [n, *one example]."""
        return self.layout.split(tensor, self.n)

    def shape(self, role: str) -> torch.Size:
        """The shape of the parameter in this role."""
        shape: torch.Size = self.args[role].shape
        return shape

    @property
    def reached(self) -> bool:
        """Whether the loss depends on this use at all."""
        return any(grad is not None for grad in self.grads)

    def release(self) -> None:
        """Drop the activations, so that memory use falls during the backward pass."""
        self.args, self.grads, self.saved = {}, [], None


class Rule:
    """Computes each example's gradient for the parameters of one kind of function.

    A rule names its `functions`, their `arguments` with defaults (`input` among them), which of the arguments
    may be parameters (`roles`), and computes per-example gradients. Squared norms follow from those; a rule
    that knows a cheaper way overrides `squared_norms`.
    """

    functions: ClassVar[Functions] = ()
    arguments: ClassVar[Arguments] = {}
    roles: ClassVar[Roles] = ("weight", "bias")

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The call's arguments by name."""
        return {**self.arguments, **dict(zip(self.arguments, args, strict=False)), **kwargs}

    def claims(self, use: ParameterUse) -> bool:
        """Whether the rule covers this call; otherwise the general rule takes it."""
        return True

    def gradients(self, use: ParameterUse, roles: Roles, start: int, stop: int) -> ByRole:
        """Gradients of examples start..stop: [stop - start, *parameter shape] for each requested role."""
        raise TypeError(f"{type(self).__name__} must define `gradients`.")

    def squared_norms(self, use: ParameterUse, roles: Roles) -> ByRole:
        """Each example's squared gradient norm for each requested role."""
        sums: dict[str, list[Tensor]] = {role: [] for role in roles}
        for start, stop in chunks(use.n, sum(use.shape(role).numel() for role in roles), use.grad):
            for role, gradient in self.gradients(use, roles, start, stop).items():
                sums[role].append(square_sum(gradient))
        return {role: torch.cat(parts) for role, parts in sums.items()}

    def builds_gradients(self, use: ParameterUse) -> bool:
        """Whether the norms come from per-example gradients that are built anyway: `norms_and_sums` exists."""
        return False

    def norms_and_sums(self, use: ParameterUse, roles: Roles) -> tuple[ByRole, ByRole]:
        """Squared norms, and the gradients summed over all examples."""
        raise TypeError(f"{type(self).__name__} must define `norms_and_sums`.")

    def fused(self, use: ParameterUse, inputs: NodeInputs) -> Tensor | None:
        """The output of an autograd node that shares work with the norms; None for torch's own node."""
        return None


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """What an autograd node of a rule is applied to.

    Args:
        live: the input in its graph.
        anchor: makes the output require a gradient even if the input does not.
        on_gradient: to be called with the use when its gradient is there.
        parameters: in the order of the use's sources; they receive the batch's gradient.
    """

    live: Tensor
    anchor: Tensor
    on_gradient: Callable[[ParameterUse], None]
    parameters: Sequence[Tensor] = ()

    def apply(self, node: type[torch.autograd.Function], use: ParameterUse) -> Tensor:
        """The output of a node that takes (live, anchor, use, on_gradient, *parameters)."""
        output: Tensor = node.apply(self.live, self.anchor, use, self.on_gradient, *self.parameters)  # type: ignore[no-untyped-call]
        return output


def chunks(n: int, numel: int, like: Tensor) -> Iterator[tuple[int, int]]:
    """Ranges of examples whose gradients, `numel` numbers each, fit in the cache together."""
    step = max(1, min(n, CHUNK_BYTES // max(1, numel * like.element_size())))
    for start in range(0, n, step):
        yield start, min(n, start + step)


def square_sum(rows: Tensor) -> Tensor:
    """Squared Euclidean norm of each row, without a copy of the rows, in sums short enough to be accurate."""
    flat = rows.reshape(rows.shape[0], -1)
    whole = flat.shape[1] - flat.shape[1] % SUM_LENGTH
    if not whole:
        return _row_squares(flat)
    total = _row_squares(flat[:, :whole].reshape(len(flat), -1, SUM_LENGTH)).sum(1)
    return total if whole == flat.shape[1] else total + _row_squares(flat[:, whole:])


def square_sum_(rows: Tensor) -> Tensor:
    """The same, in place, for a tensor that is in the cache and not needed any more."""
    return rows.mul_(rows).reshape(rows.shape[0], -1).sum(1)


def _row_squares(rows: Tensor) -> Tensor:
    dtype = torch.float32 if rows.dtype in HALVES else None
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=dtype)
    return norms.square_()


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor
