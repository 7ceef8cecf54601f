"""Find which hidden units of a model can be permuted without changing its function.

The model runs once on two examples. Every tensor operation is intercepted, so any Python code is supported, and the
rules say how units run from the operation's inputs to its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remanence.audit.permutations.operation import AxesRecord, Operation, TensorAxes
from remanence.audit.permutations.operation_rules import rule_for
from remanence.audit.permutations.symmetry import Symmetry, symmetry_of
from remanence.audit.permutations.unit_axes import fix, fixed_axis, free_axis, is_fixed
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import evaluating

_EXAMPLES = 2


def trace_symmetry(model: nn.Module, example_input: Tensor) -> Symmetry:
    """Find the permutations of hidden units that do not change a model's function.

    Args:
        model: in any mode; it is traced in evaluation mode.
        example_input: a batch that the model takes; the first two examples are used.
    """
    batch = example_input[:_EXAMPLES]
    with evaluating(model), _Tracer(model) as tracer:
        tracer.record.set(batch, [fixed_axis(size) for size in batch.shape])
        try:
            output = model(batch)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"The model could not be traced: it failed on a batch of shape {tuple(batch.shape)} "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]})."
            ) from error
    for tensor in tree_leaves(output):
        if isinstance(tensor, Tensor):
            for axis in tracer.record.of(tensor):
                fix(axis)
    return symmetry_of(tracer.named, tracer.record, tracer.sites)


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record = AxesRecord()
        self.weights: Mapping[int, str] = {
            id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        self.named: dict[str, TensorAxes] = {}
        self.sites: list[tuple[int, str, TensorAxes]] = []
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        operation = Operation(func, args, kwargs or {}, self.record)
        for tensor in operation.tensors():
            self._name(tensor)
        result = func(*args, **(kwargs or {}))
        operation.outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if operation.outputs:
            self._apply_rule(func, operation)
        self.count += 1
        return result

    def _name(self, tensor: Tensor) -> None:
        """Give a weight that appears for the first time free axes."""
        name = self.weights.get(id(tensor))
        if name is not None and name not in self.named:
            axes = [free_axis(size) for size in tensor.shape]
            self.named[name] = axes
            self.record.set(tensor, axes)

    def _apply_rule(self, func: Any, op: Operation) -> None:
        rule = rule_for(func)
        if rule is None or (op["dim"] is None and op.name in ("max", "min")):
            self._unknown(func, op)
            return
        try:
            result = rule(op)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            self._unknown(func, op)  # an unusual form of a known operation
            return
        outputs = result if result and isinstance(result[0], list) else [result]
        for tensor, axes in zip(op.outputs, outputs, strict=False):
            self.record.set(tensor, axes)
        for tensor in op.outputs[len(outputs) :]:
            self.record.set(tensor, [fixed_axis(size) for size in tensor.shape])
        self.record.virtual += op.reduced
        self.sites.append((self.count, op.name, outputs[0]))

    def _unknown(self, func: Any, op: Operation) -> None:
        """An operation without a rule is an error only if units that can be permuted go in."""
        for tensor in op.tensors():
            if not all(map(is_fixed, self.record.of(tensor))):
                raise InputError(
                    f"The model could not be traced: there is no rule for how hidden units run through "
                    f"{func} with an input of shape {tuple(tensor.shape)}, so its permutations are unknown."
                )
        for tensor in op.outputs:
            self.record.set(tensor, [fixed_axis(size) for size in tensor.shape])
