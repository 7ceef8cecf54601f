"""Two function modes: one rehearses a forward pass with a single example, one follows it with a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

from remanence.gradients.general import General
from remanence.gradients.halves import Shared
from remanence.gradients.layout import DivergedError, Layout, find_layout, sampled, settle_order
from remanence.gradients.opened import is_composite, opened
from remanence.gradients.rules import RULE_OF
from remanence.gradients.use import Call, Use, Wiring

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
        call.values = {k: sampled(t) for k, t in tensors.items() if id(t) not in self.watched}
        self.script.append(call)
        before = _random_states(self.watched)
        result = func(*args, **kwargs)
        call.draws = not all(map(torch.equal, before, _random_states(self.watched)))
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
        self.keys = {id(value): key for key, value in self.values.items()}
        self.parents: dict[int, frozenset[int]] = {key: frozenset({key}) for key in watched}
        self.derived: dict[int, Tensor] = {}
        self.roots: dict[int, Tensor] = dict(watched)
        self.uses: list[Use] = []
        self.cursor = 0
        self.anchor = torch.zeros((), requires_grad=True)
        self.general = General()
        self.shared = Shared()

    def visit(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Let calls without parameters pass; sort the others into inspections, derived tensors and uses."""
        if self.cursor >= len(self.script) or self.script[self.cursor].func != func:
            raise DivergedError(f"call {self.cursor} is {getattr(func, '__name__', func)}")
        call = self.script[self.cursor]
        self.cursor += 1
        if not call.differentiable or not _touch(self.watched, args, kwargs):
            return func(*args, **kwargs)
        if not call.layouts:
            self._lay_out(call, tree_flatten((args, kwargs))[0])
        if call.places:
            return self._use(call, args, kwargs)
        result = func(*args, **kwargs)
        if not call.out_layouts:
            call.out_layouts = self._out_layouts(call, result)
        if any(layout is not None for layout in call.out_layouts):
            use = self._generic(call, args, kwargs)
            return self._tapped(use, self.expanded(result))
        self._derive(call, args, kwargs, result)
        return result

    def close(self) -> None:
        """The forward pass is over: it must have taken the whole of the rehearsed path."""
        if self.cursor != len(self.script):
            raise DivergedError("the forward pass ended early")
        for call in self.script:
            call.values = {}

    def release(self) -> None:
        """Let go of activations and Gram matrices: the norms are known."""
        for use in self.uses:
            use.release()
        self.shared.release()

    def run(self, use: Use, args: Any, kwargs: dict[str, Any], cut: tuple[Any, dict[str, Any]]) -> Any:
        """The call's result: with parameters cut off, so that the backward pass stops at the input."""
        return use.call.func(*cut[0], **cut[1])

    def fused(self, use: Use, live: Tensor, cut: tuple[Any, dict[str, Any]]) -> Tensor | None:
        """The result through a node of the rule's own."""
        return use.rule.fused(use, Wiring(live, self.anchor, self.arrive))

    def expanded(self, result: Any) -> Any:
        """A parameter repeated for every example (`token.expand(n, -1, -1)`): each gets its own copy."""
        return tree_map_only(Tensor, lambda t: t.detach(), result)

    def rederived(self, call: Call, args: Any, kwargs: dict[str, Any], result: Any) -> list[Tensor]:
        """Tensors made of parameters alone, with a graph that is still there after the backward pass."""
        return _tensors(result)

    def _derive(self, call: Call, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """A tensor made of parameters alone (a normalised weight, say) is watched in its turn."""
        leaves = tree_flatten((args, kwargs))[0]
        roots = frozenset().union(*(self.parents.get(id(leaf), frozenset()) for leaf in leaves))
        for tensor, twin in zip(_tensors(result), self.rederived(call, args, kwargs, result), strict=True):
            if tensor.requires_grad:
                key = id(tensor)
                self.watched[key], self.derived[key] = tensor, twin
                self.values[key], self.parents[key] = tensor.detach(), roots
                self.keys[id(self.values[key])] = key

    def _lay_out(self, call: Call, leaves: list[Any]) -> None:
        for k, shape in call.shapes.items():
            layout = None if id(leaves[k]) in self.watched else find_layout(shape, leaves[k].shape, self.n)
            if layout is not None:
                layout = settle_order(layout, call.values[k], leaves[k], self.n)
            call.layouts[k] = layout
        call.places = frozenset(layout for layout in call.layouts.values() if layout is not None)

    def _out_layouts(self, call: Call, result: Any) -> list[Layout | None]:
        """Layouts of the outputs; the order of merged dimensions follows the inputs."""
        major = all(place.major for place in call.places)
        found = []
        for one, tensor in zip(call.out_shapes, _tensors(result), strict=True):
            layout = find_layout(one, tensor.shape, self.n)
            found.append(Layout(layout.dim, major) if layout is not None else None)
        return found

    def _use(self, call: Call, args: Any, kwargs: dict[str, Any]) -> Any:
        cut = _swapped(self.values, args), _swapped(self.values, kwargs)
        use, live = self._claimed(call, *cut)
        if use is None:
            use = self._generic(call, args, kwargs)
        elif live is not None and (fused := self.fused(use, live, cut)) is not None:
            self.uses.append(use)
            return fused
        result = self.run(use, args, kwargs, cut)
        if not call.out_layouts:
            call.out_layouts = self._out_layouts(call, result)
        return self._tapped(use, result)

    def _claimed(self, call: Call, args: Any, kwargs: dict[str, Any]) -> tuple[Use | None, Tensor | None]:
        """The use as its own rule sees it, if there is one and it covers the call, and the live input."""
        rule = RULE_OF.get(call.func)
        if rule is None or len(call.places) != 1:
            return None, None
        bound = rule.bind(*args, **kwargs)
        sources = {
            role: self.keys[id(bound[role])] for role in rule.roles if id(bound.get(role)) in self.keys
        }
        if len(sources) != _count(self.keys, args) + _count(self.keys, kwargs.values()):
            return None, None
        (place,) = call.places
        kept = {name: _cut_off(value) for name, value in bound.items()}
        use = Use(rule, call, kept, self.n, place, sources, shared=self.shared)
        return (use, bound.get("input")) if rule.claims(use) else (None, None)

    def _generic(self, call: Call, args: Any, kwargs: dict[str, Any]) -> Use:
        """The use as the general rule sees it; arguments that the call will overwrite are copied."""
        leaves = tree_flatten((args, kwargs))[0]
        inplace = _is_inplace(call.func)
        sources = {str(k): id(leaf) for k, leaf in enumerate(leaves) if id(leaf) in self.watched}
        tensors = {str(k): leaf for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        kept = {k: leaf.detach().clone() if inplace else leaf.detach() for k, leaf in tensors.items()}
        return Use(self.general, call, kept, self.n, Layout(), sources)

    def _tapped(self, use: Use, result: Any) -> Any:
        """Ask for the gradients of the outputs; where no gradient would flow yet, start one here."""
        self.uses.append(use)
        if isinstance(result, Tensor):
            return self._tap(use, 0, result)
        count = len(_tensors(result))
        use.grads = [None] * count
        order = iter(range(count))
        return tree_map_only(Tensor, lambda output: self._tap(use, next(order), output), result)

    def _tap(self, use: Use, k: int, output: Tensor) -> Tensor:
        if not output.is_floating_point():
            return output
        if not output.requires_grad:
            whole = output.clone() if output._is_view() else output
            output = _Start.apply(whole, self.anchor)  # type: ignore[no-untyped-call]
        output.register_hook(lambda grad: self._note(use, k, grad))  # type: ignore[no-untyped-call]
        return output

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


def _random_states(watched: Mapping[int, Tensor]) -> list[Tensor]:
    """Where the random numbers stand, of the processor and of the parameters' device."""
    states = [torch.get_rng_state()]
    device = next(iter(watched.values())).device
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]


def _swapped(values: Mapping[int, Tensor], args: Any) -> Any:
    """The arguments with watched tensors replaced by their values, lists, tuples and dictionaries included."""
    if isinstance(args, (list, tuple)) and not isinstance(args, torch.Size):
        return type(args)([_swapped(values, item) for item in args])
    if isinstance(args, dict):
        return {name: _swapped(values, item) for name, item in args.items()}
    return values.get(id(args), args)


def _cut_off(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) and value.requires_grad else value


def _count(keys: Mapping[int, int], args: Any) -> int:
    return sum(
        1 if id(item) in keys else _count(keys, item) if isinstance(item, (list, tuple)) else 0
        for item in args
    )


def _is_inplace(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
