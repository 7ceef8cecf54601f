"""Follow a recorded forward pass with a batch, and find every use of a parameter in it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from remanence.gradients.layers import RULE_OF
from remanence.gradients.layers.general import GeneralRule
from remanence.gradients.layers.gram_blocks import GramCache
from remanence.gradients.layers.rule import NodeInputs, ParameterUse
from remanence.gradients.layout import DivergedError, Layout, find_layout, settle_order
from remanence.gradients.recording import Call, CallMode, tensor_leaves, uses_any


class FallbackWarning(UserWarning):
    """Part of a model is computed more slowly; the result is exact all the same."""


class UseTracker(CallMode):
    """Follows recorded calls with a batch of n: detaches and keeps every use of a parameter, awaits its gradient.

    Args:
        tracked: the parameters to differentiate by, by identity.
        frozen: the others.
        calls: the recorded calls.
        n: number of examples in the batch.
        values: the tracked parameters without a graph, in the memory format of the pass.
        on_gradient: called with a use as soon as its only output's gradient is there.
    """

    def __init__(
        self,
        tracked: Mapping[int, Tensor],
        frozen: Mapping[int, Tensor],
        calls: list[Call],
        n: int,
        values: Mapping[int, Tensor],
        on_gradient: Callable[[ParameterUse], None],
    ) -> None:
        super().__init__(tracked, frozen)
        self.calls, self.n, self.on_gradient = calls, n, on_gradient
        self.values = dict(values)
        self.keys = {id(value): key for key, value in self.values.items()}
        self.parents: dict[int, frozenset[int]] = {key: frozenset({key}) for key in tracked}
        self.derived: dict[int, Tensor] = {}
        self.roots: dict[int, Tensor] = dict(tracked)
        self.uses: list[ParameterUse] = []
        self.cursor = 0
        self.anchor = torch.zeros((), requires_grad=True)
        self.general_rule = GeneralRule()
        self.gram_cache = GramCache()

    def on_call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls without parameters pass; the others are inspections, derived tensors or uses."""
        if self.cursor >= len(self.calls) or self.calls[self.cursor].func != func:
            raise DivergedError(f"call {self.cursor} is {getattr(func, '__name__', func)}")
        call = self.calls[self.cursor]
        self.cursor += 1
        if not call.differentiable or not uses_any(self.tracked, args, kwargs):
            return func(*args, **kwargs)
        if not call.layouts:
            self._set_layouts(call, tree_flatten((args, kwargs))[0])
        if call.example_layouts:
            return self._use(call, args, kwargs)
        result = func(*args, **kwargs)
        if not call.out_layouts:
            call.out_layouts = self._out_layouts(call, result)
        if any(layout is not None for layout in call.out_layouts):
            use = self._general_use(call, args, kwargs)
            return self._hooked_outputs(use, self._expanded(result))
        self._derive(call, args, kwargs, result)
        return result

    def close(self) -> None:
        """The forward pass is over: it must have made every recorded call."""
        if self.cursor != len(self.calls):
            raise DivergedError("the forward pass ended early")
        for call in self.calls:
            call.samples = {}

    def release(self) -> None:
        """Drop activations and Gram matrices: the norms are known."""
        for use in self.uses:
            use.release()
        self.gram_cache.release()

    def _run(
        self, use: ParameterUse, args: Any, kwargs: dict[str, Any], cut: tuple[Any, dict[str, Any]]
    ) -> Any:
        """The call's result: with parameters detached, so that the backward pass only computes input gradients."""
        return use.call.func(*cut[0], **cut[1])

    def _fused(self, use: ParameterUse, live: Tensor, cut: tuple[Any, dict[str, Any]]) -> Tensor | None:
        """The result through the rule's own autograd node, if it has one."""
        return use.rule.fused(use, NodeInputs(live, self.anchor, self.on_gradient))

    def _expanded(self, result: Any) -> Any:
        """A parameter repeated for every example (`token.expand(n, -1, -1)`): one gradient per copy."""
        return tree_map_only(Tensor, lambda t: t.detach(), result)

    def _rederived(self, call: Call, args: Any, kwargs: dict[str, Any], result: Any) -> list[Tensor]:
        """Tensors made of parameters alone, with a graph that outlives the backward pass."""
        return tensor_leaves(result)

    def layer_of(self, use: ParameterUse, names: Mapping[int, str]) -> str:
        """The name of the layer whose parameters a call uses."""
        parameter = next(names[root] for s in use.sources.values() for root in sorted(self.parents[s]))
        return parameter.rpartition(".")[0] or parameter

    def warn_of_fallbacks(self, names: Mapping[int, str], warned: set[str]) -> None:
        """Warn once per layer that has no rule of its own."""
        for use in self.uses:
            if use.rule is not self.general_rule or not any(use.call.layouts.values()):
                continue
            layer = self.layer_of(use, names)
            if layer not in warned:
                warned.add(layer)
                size = sum(use.args[role].numel() for role in use.sources)
                func = getattr(use.call.func, "__name__", use.call.func)
                warnings.warn(
                    f"Layer `{layer}` ({func}) has no rule of its own: its {size:,} parameters are "
                    "differentiated example by example, which is slower but exact.",
                    FallbackWarning,
                    stacklevel=2,
                )

    def _derive(self, call: Call, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """A tensor made of parameters alone (a normalized weight, for example) is tracked too."""
        leaves = tree_flatten((args, kwargs))[0]
        roots = frozenset().union(*(self.parents.get(id(leaf), frozenset()) for leaf in leaves))
        for tensor, twin in zip(
            tensor_leaves(result), self._rederived(call, args, kwargs, result), strict=True
        ):
            if tensor.requires_grad:
                key = id(tensor)
                self.tracked[key], self.derived[key] = tensor, twin
                self.values[key], self.parents[key] = tensor.detach(), roots
                self.keys[id(self.values[key])] = key

    def _set_layouts(self, call: Call, leaves: list[Any]) -> None:
        for k, shape in call.shapes.items():
            layout = None if id(leaves[k]) in self.tracked else find_layout(shape, leaves[k].shape, self.n)
            if layout is not None:
                layout = settle_order(layout, call.samples[k], leaves[k], self.n)
            call.layouts[k] = layout
        call.example_layouts = frozenset(layout for layout in call.layouts.values() if layout is not None)

    def _out_layouts(self, call: Call, result: Any) -> list[Layout | None]:
        """Layouts of the outputs; the order of merged dimensions follows the inputs."""
        major = all(layout.major for layout in call.example_layouts)
        layouts: list[Layout | None] = []
        for one, tensor in zip(call.out_shapes, tensor_leaves(result), strict=True):
            layout = find_layout(one, tensor.shape, self.n)
            layouts.append(Layout(layout.dim, major) if layout is not None else None)
        return layouts

    def _use(self, call: Call, args: Any, kwargs: dict[str, Any]) -> Any:
        cut = _swapped(self.values, args), _swapped(self.values, kwargs)
        use, live = self._specific(call, *cut)
        if use is None:
            use = self._general_use(call, args, kwargs)
        elif live is not None and (fused := self._fused(use, live, cut)) is not None:
            self.uses.append(use)
            return fused
        result = self._run(use, args, kwargs, cut)
        if not call.out_layouts:
            call.out_layouts = self._out_layouts(call, result)
        return self._hooked_outputs(use, result)

    def _specific(
        self, call: Call, args: Any, kwargs: dict[str, Any]
    ) -> tuple[ParameterUse | None, Tensor | None]:
        """The use under the rule for its function, if there is one and it covers the call, and the live input."""
        rule = RULE_OF.get(call.func)
        if rule is None or len(call.example_layouts) != 1:
            return None, None
        bound = rule.bind(*args, **kwargs)
        sources = {
            role: self.keys[id(bound[role])] for role in rule.roles if id(bound.get(role)) in self.keys
        }
        if len(sources) != _count(self.keys, args) + _count(self.keys, kwargs):
            return None, None
        (layout,) = call.example_layouts
        kept = {
            name: value.detach() if isinstance(value, Tensor) and value.requires_grad else value
            for name, value in bound.items()
        }
        use = ParameterUse(rule, call, kept, self.n, layout, sources, gram_cache=self.gram_cache)
        return (use, bound.get("input")) if rule.claims(use) else (None, None)

    def _general_use(self, call: Call, args: Any, kwargs: dict[str, Any]) -> ParameterUse:
        """The use under the general rule; arguments that the call will overwrite are copied."""
        leaves = tree_flatten((args, kwargs))[0]
        inplace = _is_inplace(call.func)
        sources = {str(k): id(leaf) for k, leaf in enumerate(leaves) if id(leaf) in self.tracked}
        tensors = {str(k): leaf for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        kept = {k: leaf.detach().clone() if inplace else leaf.detach() for k, leaf in tensors.items()}
        return ParameterUse(self.general_rule, call, kept, self.n, Layout(), sources)

    def _hooked_outputs(self, use: ParameterUse, result: Any) -> Any:
        """Register hooks for the gradients of the outputs; where no gradient would flow yet, start one here."""
        self.uses.append(use)
        if isinstance(result, Tensor):
            return self._hooked(use, 0, result)
        count = len(tensor_leaves(result))
        use.grads = [None] * count
        order = iter(range(count))
        return tree_map_only(Tensor, lambda output: self._hooked(use, next(order), output), result)

    def _hooked(self, use: ParameterUse, k: int, output: Tensor) -> Tensor:
        if not output.is_floating_point():
            return output
        if not output.requires_grad:
            whole = output.clone() if output._is_view() else output
            output = _RequireGradient.apply(whole, self.anchor)  # type: ignore[no-untyped-call]
        output.register_hook(lambda grad: self._keep_gradient(use, k, grad))  # type: ignore[no-untyped-call]
        return output

    def _keep_gradient(self, use: ParameterUse, k: int, grad: Tensor) -> None:
        use.grads[k] = grad
        if len(use.grads) == 1:
            self.on_gradient(use)


class _RequireGradient(torch.autograd.Function):
    """The identity, in place, whose output requires a gradient; the backward pass ends here."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None


def _swapped(values: Mapping[int, Tensor], args: Any) -> Any:
    """The arguments with tracked tensors replaced by their values, lists, tuples and dictionaries included."""
    if isinstance(args, dict):
        return {name: _swapped_item(values, item) for name, item in args.items()}
    return type(args)([_swapped_item(values, item) for item in args])


def _swapped_item(values: Mapping[int, Tensor], item: Any) -> Any:
    return _swapped(values, item) if _may_hold_tensors(item) else values.get(id(item), item)


def _count(keys: Mapping[int, int], args: Any) -> int:
    values = args.values() if isinstance(args, dict) else args
    return sum(_count(keys, item) if _may_hold_tensors(item) else id(item) in keys for item in values)


def _may_hold_tensors(item: Any) -> bool:
    """Whether it is a collection, and not just the numbers of a stride or a shape: most small layers have several."""
    if isinstance(item, (list, tuple)):
        return not all(type(number) is int for number in item)
    return isinstance(item, dict)


def _is_inplace(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
