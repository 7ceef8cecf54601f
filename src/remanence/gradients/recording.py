"""Record every torch call of a forward pass with a single example."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map_only

from remanence.gradients.layout import Layout, sampled


@dataclass(eq=False)
class Call:
    """One function call as it was for a batch of one, and, after the first batch, where examples lie.

    Args:
        func: the function.
        spec: the structure of its arguments.
        shapes: shapes of the tensors among the flattened arguments, by position.
        literals: the flattened arguments, None in place of tensors.
        out_shapes: shapes of the output tensors.
        differentiable: whether an output requires a gradient.
        samples: entries of the single example's tensors, kept until the layouts are known.
        layouts: where each argument keeps its examples, None where it has none.
        example_layouts: the set of those that are not None.
        out_layouts: the same for the outputs.
        sole_use: no parameter of this call is used anywhere else, as an earlier batch has shown.
        is_random: whether it drew random numbers.
    """

    func: Callable[..., Any]
    spec: Any = None
    shapes: dict[int, torch.Size] = field(default_factory=dict)
    literals: list[Any] = field(default_factory=list)
    out_shapes: list[torch.Size] = field(default_factory=list)
    differentiable: bool = False
    samples: dict[int, Tensor] = field(default_factory=dict)
    layouts: dict[int, Layout | None] = field(default_factory=dict)
    example_layouts: frozenset[Layout] = frozenset()
    out_layouts: list[Layout | None] = field(default_factory=list)
    sole_use: bool = False
    is_random: bool = False


class CallMode(TorchFunctionMode):
    """Opens composite functions, replaces frozen parameters by their values, passes other calls to `on_call`."""

    def __init__(self, tracked: Mapping[int, Tensor], frozen: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.tracked = dict(tracked)
        self.frozen = {key: tensor.detach() for key, tensor in frozen.items()}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _is_composite(func):
            with self:
                return _without_dispatch(func)(*args, **kwargs)
        if self.frozen and uses_any(self.frozen, args, kwargs):
            args, kwargs = tree_map_only(Tensor, lambda t: self.frozen.get(id(t), t), (args, kwargs))
        return self.on_call(func, args, kwargs)

    def on_call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)


class CallRecorder(CallMode):
    """Records every call of a batch of one, under plain autograd."""

    def __init__(self, tracked: Mapping[int, Tensor], frozen: Mapping[int, Tensor]) -> None:
        super().__init__(tracked, frozen)
        self.calls: list[Call] = []

    def on_call(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        tensors = {k: leaf for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        call = Call(func, spec, {k: t.shape for k, t in tensors.items()})
        call.literals = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        call.samples = {k: sampled(t) for k, t in tensors.items() if id(t) not in self.tracked}
        self.calls.append(call)
        before = _random_states(self.tracked)
        result = func(*args, **kwargs)
        call.is_random = not all(map(torch.equal, before, _random_states(self.tracked)))
        outputs = tensor_leaves(result)
        call.out_shapes = [t.shape for t in outputs]
        call.differentiable = any(t.requires_grad for t in outputs)
        return result


def uses_any(tensors: Mapping[int, Tensor], args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether one of the tensors, by identity, is among the arguments, lists and tuples included."""
    for value in (*args, *kwargs.values()):
        if id(value) in tensors:
            return True
        if isinstance(value, (list, tuple)) and any(id(item) in tensors for item in value):
            return True
    return False


def tensor_leaves(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]


def _random_states(tracked: Mapping[int, Tensor]) -> list[Tensor]:
    """Random number states of the CPU and of the parameters' device."""
    states = [torch.get_rng_state()]
    device = next(iter(tracked.values())).device
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


_DISPATCH_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def _is_composite(func: Callable[..., Any]) -> bool:
    """Whether a function is Python over further torch calls, such as `multi_head_attention_forward`.

    Functions with a closure only switch between two others, which call the switch again: left whole.
    """
    modules = ("torch.nn.functional", "torch.functional")
    return isinstance(func, types.FunctionType) and not func.__closure__ and func.__module__ in modules


@functools.cache
def _without_dispatch(func: types.FunctionType) -> Callable[..., Any]:
    """The same code without the check at its top that passes the whole call to the mode."""
    names = {**func.__globals__, **{name: _never for name in _DISPATCH_CHECKS if name in func.__globals__}}
    twin = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _never(*args: Any) -> bool:
    return False
