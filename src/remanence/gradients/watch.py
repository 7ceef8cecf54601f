"""Two function modes: one rehearses a forward pass with a single example, one follows it with a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from remanence.gradients.general import General
from remanence.gradients.halves import Shared
from remanence.gradients.layout import DivergedError, Layout, find_layout, settle_order
from remanence.gradients.opened import is_composite, opened
from remanence.gradients.rules import RULE_OF
from remanence.gradients.use import Call, Use

Script = list[Call]


class _Mode(TorchFunctionMode):
    """Opens composites, swaps frozen parameters for their values, and hands every other call to `visit`."""

    def __init__(self, watched: Mapping[int, Tensor], frozen: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.watched = dict(watched)
        self.frozen = {key: tensor.detach() for key, tensor in frozen.items()}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_composite(func):
            with self:
                return opened(func)(*args, **kwargs)
        if self.frozen and _touch(self.frozen, args, kwargs):
            args, kwargs = tree_map_only(Tensor, lambda t: self.frozen.get(id(t), t), (args, kwargs))
        return self.visit(func, args, kwargs)

    def visit(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """What the mode does with a call."""
        return func(*args, **kwargs)


class Rehearsal(_Mode):
    """Writes down every call of a batch of one, under plain autograd."""

    def __init__(self, watched: Mapping[int, Tensor], frozen: Mapping[int, Tensor]) -> None:
        super().__init__(watched, frozen)
        self.script: Script = []

    def visit(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Record shapes and literals, run as is."""
        leaves, spec = tree_flatten((args, kwargs))
        tensors = {k: leaf for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        call = Call(func, spec, {k: t.shape for k, t in tensors.items()})
        call.literals = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        call.values = {k: t.detach().clone() for k, t in tensors.items() if id(t) not in self.watched}
        self.script.append(call)
        result = func(*args, **kwargs)
        outputs = _tensors(result)
        call.out_shapes = [t.shape for t in outputs]
        call.differentiable = any(t.requires_grad for t in outputs)
        return result


class Watch(_Mode):
    """Follows a script with a batch of n: cuts off, notes and taps every use of a parameter.

    Args:
        watched: the parameters to differentiate by, by identity.
        frozen: the others.
        script: what the rehearsal wrote down.
        n: examples in the batch.
        values: the watched parameters without a graph, in the memory format that suits the pass.
        arrive: called with a use as soon as its only output's gradient is there.
    """

    def __init__(
        self,
        watched: Mapping[int, Tensor],
        frozen: Mapping[int, Tensor],
        script: Script,
        n: int,
        values: Mapping[int, Tensor],
        arrive: Callable[[Use], None],
    ) -> None:
        super().__init__(watched, frozen)
        self.script, self.n, self.arrive = script, n, arrive
        self.values = dict(values)
        self.derived: dict[int, Tensor] = {}
        self.parents: dict[int, frozenset[int]] = {key: frozenset({key}) for key in watched}
        self.uses: list[Use] = []
        self.cursor = 0
        self.anchor = torch.zeros((), requires_grad=True)
        self.general = General()
        self.shared = Shared()

    def visit(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Let calls without parameters pass; sort the others into inspections, derived tensors and uses."""
        if self.cursor >= len(self.script) or self.script[self.cursor].func != func:
            raise DivergedError(f"call {self.cursor}: {func}")
        call = self.script[self.cursor]
        self.cursor += 1
        if not call.differentiable or not _touch(self.watched, args, kwargs):
            return func(*args, **kwargs)
        leaves, _ = tree_flatten((args, kwargs))
        if not call.layouts:
            self._lay_out(call, leaves)
        if any(layout is not None for layout in call.layouts.values()):
            return self._use(call, leaves, args, kwargs)
        result = func(*args, **kwargs)
        if not call.out_layouts:
            call.out_layouts = self._out_layouts(call, result)
        if any(layout is not None for layout in call.out_layouts):
            return self._expanded(call, leaves, result)
        self._derive(leaves, result)
        return result

    def _derive(self, leaves: list[Any], result: Any) -> None:
        """A tensor made of parameters alone (a normalised weight, say) is watched in its turn."""
        roots = frozenset().union(*(self.parents.get(id(leaf), frozenset()) for leaf in leaves))
        for tensor in _tensors(result):
            if tensor.requires_grad:
                key = id(tensor)
                self.derived[key] = self.watched[key] = tensor
                self.values[key], self.parents[key] = tensor.detach(), roots

    def close(self) -> None:
        """The forward pass is over: it must have taken the whole of the rehearsed path."""
        if self.cursor != len(self.script):
            raise DivergedError("the forward pass ended early")
        for call in self.script:
            call.values = {}

    def _lay_out(self, call: Call, leaves: list[Any]) -> None:
        for k, shape in call.shapes.items():
            layout = None if id(leaves[k]) in self.watched else find_layout(shape, leaves[k].shape, self.n)
            if layout is not None:
                layout = settle_order(layout, call.values[k], leaves[k], self.n)
            call.layouts[k] = layout

    def _out_layouts(self, call: Call, result: Any) -> list[Layout | None]:
        """Layouts of the outputs; the order of merged dimensions follows the inputs."""
        major = all(layout.major for layout in call.layouts.values() if layout is not None)
        found = []
        for one, tensor in zip(call.out_shapes, _tensors(result), strict=True):
            layout = find_layout(one, tensor.shape, self.n)
            found.append(Layout(layout.dim, major) if layout is not None else None)
        return found

    def _use(self, call: Call, leaves: list[Any], args: Any, kwargs: dict[str, Any]) -> Any:
        cut = [self.values.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        use = self._claimed(call, leaves, cut)
        if use is not None:
            use.live_input = self._live(call, use, leaves)
            fused = use.rule.fused(use, self.anchor, self.arrive)
            use.live_input = None
            if fused is not None:
                self.uses.append(use)
                return fused
        inplace = _is_inplace(call.func)
        if use is None:
            use = self._generic(call, leaves, [_kept(leaf, inplace) for leaf in cut])
        cut_args, cut_kwargs = tree_unflatten(cut, call.spec)
        result = call.func(*cut_args, **cut_kwargs)
        if not call.out_layouts:
            call.out_layouts = self._out_layouts(call, result)
        return self._tapped(use, result)

    def _live(self, call: Call, use: Use, leaves: list[Any]) -> Tensor | None:
        """The input as it hangs in the graph."""
        return next((leaves[k] for k, layout in call.layouts.items() if layout is not None), None)

    def _claimed(self, call: Call, leaves: list[Any], cut: list[Any]) -> Use | None:
        """The use as its own rule sees it, when there is one and it covers the call."""
        rule = RULE_OF.get(call.func)
        places = {layout for layout in call.layouts.values() if layout is not None}
        if rule is None or len(places) != 1:
            return None
        cut_args, cut_kwargs = tree_unflatten(cut, call.spec)
        bound = rule.bind(*cut_args, **cut_kwargs)
        keys = {id(self.values[id(leaf)]): id(leaf) for leaf in leaves if id(leaf) in self.values}
        sources = {role: keys[id(bound[role])] for role in rule.roles if id(bound.get(role)) in keys}
        wanted = sum(1 for leaf in leaves if id(leaf) in self.watched)
        if len(sources) != wanted:
            return None
        kept = {name: _kept(value, inplace=False) for name, value in bound.items()}
        use = Use(rule, call, kept, self.n, places.pop(), sources, shared=self.shared)
        return use if rule.claims(use) else None

    def _generic(self, call: Call, leaves: list[Any], cut: list[Any]) -> Use:
        sources = {str(k): id(leaf) for k, leaf in enumerate(leaves) if id(leaf) in self.watched}
        tensors = {str(k): leaf for k, leaf in enumerate(cut) if isinstance(leaf, Tensor)}
        return Use(self.general, call, tensors, self.n, Layout(), sources)

    def _expanded(self, call: Call, leaves: list[Any], result: Any) -> Any:
        """A parameter repeated for every example (`token.expand(n, -1, -1)`): each gets its own copy."""
        cut = [self.values.get(id(leaf), leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        use = self._generic(call, leaves, cut)
        return self._tapped(use, tree_map_only(Tensor, lambda t: t.detach(), result))

    def _tapped(self, use: Use, result: Any) -> Any:
        """Ask for the gradients of the outputs; where no gradient would flow yet, start one here."""
        self.uses.append(use)
        count = len(_tensors(result))
        use.grads = [None] * count
        order = iter(range(count))

        def tap(output: Tensor) -> Tensor:
            k = next(order)
            if not output.is_floating_point():
                return output
            if not output.requires_grad:
                whole = output.clone() if output._is_view() else output
                output = _Start.apply(whole, self.anchor)  # type: ignore[no-untyped-call]
            output.register_hook(lambda grad: self._note(use, k, grad))  # type: ignore[no-untyped-call]
            return output

        return tree_map_only(Tensor, tap, result)

    def _note(self, use: Use, k: int, grad: Tensor) -> None:
        use.grads[k] = grad
        if len(use.grads) == 1:
            self.arrive(use)


class _Start(torch.autograd.Function):
    """The identity, in place, whose output requires a gradient: the backward pass ends here."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None


def _touch(tensors: Mapping[int, Tensor], args: Any, kwargs: dict[str, Any]) -> bool:
    for value in (*args, *kwargs.values()):
        if id(value) in tensors:
            return True
        if isinstance(value, (list, tuple)) and any(id(item) in tensors for item in value):
            return True
    return False


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]


def _kept(value: Any, inplace: bool) -> Any:
    """An argument to remember: cut off from the graph, and copied where the call is about to overwrite it."""
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone() if inplace else value.detach()


def _is_inplace(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
