"""One use of parameters in a forward pass, and the contract of a rule that knows its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from remanence.gradients.halves import Shared
from remanence.gradients.layout import Layout
from remanence.gradients.precision import HALVES

Functions = tuple[Callable[..., Any], ...]

CHUNK_BYTES = 4 << 20
"""Materialised per-example gradients at a time: what stays in a core's share of the cache."""
RUN = 4608
"""Numbers summed in one go: the library's sums lose digits in proportion; 3 × 3 kernels divide by it."""


@dataclass(eq=False)
class Call:
    """One function call as it was for a batch of one, and, once a batch has come through, where examples lie.

    Args:
        func: what was called.
        spec: the structure of its arguments.
        shapes: shapes of the tensors among the flattened arguments, by position.
        literals: the flattened arguments, None in place of tensors.
        out_shapes: shapes of the output tensors.
        differentiable: whether an output requires a gradient.
        values: samples of the single example's tensors, kept until the layouts are known.
        layouts: where each argument keeps its examples, None where it has none; `places` are those found.
        out_layouts: the same for the outputs.
        lone: every parameter used here is used nowhere else, as an earlier batch has shown.
        draws: whether it took random numbers.
    """

    func: Callable[..., Any]
    spec: Any = None
    shapes: dict[int, torch.Size] = field(default_factory=dict)
    literals: list[Any] = field(default_factory=list)
    out_shapes: list[torch.Size] = field(default_factory=list)
    differentiable: bool = False
    values: dict[int, Tensor] = field(default_factory=dict)
    layouts: dict[int, Layout | None] = field(default_factory=dict)
    out_layouts: list[Layout | None] = field(default_factory=list)
    places: frozenset[Layout] = frozenset()
    lone: bool = False
    draws: bool = False


@dataclass(eq=False)
class Use:
    """A call that used parameters, and later the gradient of its output.

    Args:
        rule: who knows its per-example gradients.
        call: what was called.
        args: the call's arguments by name, cut off from any graph.
        n: how many examples.
        layout: where input and output keep them.
        sources: for each argument that is a parameter, the key of the parameter.
        grads: gradients of the outputs, filled in by the backward pass.
        saved: what the rule wants to keep between calls.
        shared: Gram matrices that neighbouring uses have in common.
    """

    rule: Rule
    call: Call
    args: dict[str, Any]
    n: int
    layout: Layout
    sources: dict[str, int]
    grads: list[Tensor | None] = field(default_factory=lambda: [None])
    saved: Any = None
    shared: Shared = field(default_factory=Shared)

    @property
    def grad(self) -> Tensor:
        """The output's gradient, in a precision that can be squared and summed."""
        grad = self.grads[0]
        assert grad is not None  # only reached uses are settled
        return _wide(grad)

    @property
    def input(self) -> Tensor:
        """The call's input, in the same precision as the gradient."""
        return _wide(self.args["input"])

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

    @property
    def general(self) -> bool:
        """Whether no rule of its own covers this use."""
        return not self.rule.functions

    def release(self) -> None:
        """Let go of activations, so that memory falls as the backward pass goes."""
        self.args, self.grads, self.saved = {}, [], None


class Rule:
    """How one kind of function hands each example its share of the parameters' gradient.

    A rule names its `functions`, binds their arguments to names (`input` among them), says which of the
    names may be parameters (`roles`), and computes per-example gradients. Squared norms follow from those;
    a rule that knows a cheaper way overrides `squared_norms`.
    """

    functions: ClassVar[Functions] = ()
    roles: ClassVar[tuple[str, ...]] = ("weight", "bias")

    def bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The call's arguments by name."""
        raise TypeError(f"{type(self).__name__} must define `bind`.")

    def claims(self, use: Use) -> bool:
        """Whether the rule covers this call; when not, the general rule takes it."""
        return True

    def gradients(self, use: Use, roles: tuple[str, ...], start: int, stop: int) -> dict[str, Tensor]:
        """Gradients of examples start..stop: [stop - start, *parameter shape] for each role asked for."""
        raise TypeError(f"{type(self).__name__} must define `gradients`.")

    def squared_norms(self, use: Use, roles: tuple[str, ...]) -> dict[str, Tensor]:
        """Each example's squared gradient norm for each role asked for."""
        sums: dict[str, list[Tensor]] = {role: [] for role in roles}
        for start, stop in chunks(use.n, sum(use.shape(role).numel() for role in roles), use.grad):
            for role, gradient in self.gradients(use, roles, start, stop).items():
                sums[role].append(square_sum(gradient))
        return {role: torch.cat(parts) for role, parts in sums.items()}

    def shares(self, use: Use) -> bool:
        """Whether the norms come from gradients that are built anyway, so that their sum costs little."""
        return False

    def norms_and_sums(self, use: Use, roles: tuple[str, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Squared norms, and the gradients summed over all examples."""
        norms: dict[str, list[Tensor]] = {role: [] for role in roles}
        sums: dict[str, Tensor] = {}
        for start, stop in chunks(use.n, sum(use.shape(role).numel() for role in roles), use.grad):
            for role, gradient in self.gradients(use, roles, start, stop).items():
                norms[role].append(square_sum(gradient))
                part = gradient.sum(0)
                sums[role] = sums[role] + part if role in sums else part
        return {role: torch.cat(parts) for role, parts in norms.items()}, sums

    def fused(self, use: Use, wiring: Wiring) -> Tensor | None:
        """The output through the rule's own node, which shares work with the norms; None for the native."""
        return None


@dataclass(frozen=True, eq=False)
class Wiring:
    """What a node of a rule's own is tied to.

    Args:
        live: the input in its graph.
        anchor: makes the output require a gradient even if the input does not.
        arrive: to be called with the use when its gradient is there.
        parameters: in the order of the use's sources; they are to get the batch's gradient.
    """

    live: Tensor
    anchor: Tensor
    arrive: Callable[[Use], None]
    parameters: Sequence[Tensor] = ()

    def through(self, node: type[torch.autograd.Function], use: Use) -> Tensor:
        """The use's output by this node, which takes (live, anchor, use, arrive, *parameters)."""
        output: Tensor = node.apply(self.live, self.anchor, use, self.arrive, *self.parameters)  # type: ignore[no-untyped-call]
        return output


def chunks(n: int, numel: int, like: Tensor) -> Iterator[tuple[int, int]]:
    """Ranges of examples whose materialised gradients fit in the cache together."""
    step = max(1, min(n, CHUNK_BYTES // max(1, numel * like.element_size())))
    for start in range(0, n, step):
        yield start, min(n, start + step)


def square_sum(rows: Tensor) -> Tensor:
    """Squared Euclidean norm of each row, without a copy of the rows, in runs short enough to sum exactly."""
    flat = rows.reshape(rows.shape[0], -1)
    whole = flat.shape[1] - flat.shape[1] % RUN
    if not whole:
        return _row_squares(flat)
    total = _row_squares(flat[:, :whole].reshape(len(flat), -1, RUN)).sum(1)
    return total if whole == flat.shape[1] else total + _row_squares(flat[:, whole:])


def square_sum_(rows: Tensor) -> Tensor:
    """The same for a tensor that is in the cache and that nobody needs any more: squared in place."""
    return rows.mul_(rows).reshape(rows.shape[0], -1).sum(1)


def _row_squares(rows: Tensor) -> Tensor:
    wide = torch.float32 if rows.dtype in HALVES else None
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=wide)
    return norms.square_()


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor
