"""Which hidden units of a model may change places without changing what it computes.

The model is run once on a few examples; every tensor operation is seen as it happens, so that any Python goes, and
the rules say how units run from its inputs to its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remanence.audit.permutations.axes import free, is_still, resolved, still
from remanence.audit.permutations.labels import Label, Labels, Step
from remanence.audit.permutations.rules import rule_for
from remanence.audit.permutations.symmetry import Symmetry, settle
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import evaluating

_EXAMPLES = 2


def trace_symmetry(model: nn.Module, example_input: Tensor) -> Symmetry:
    """Find the permutations of hidden units that leave a model's function alone.

    Args:
        model: in any mode; it is followed in evaluation mode.
        example_input: a batch that the model takes; the first two examples are used.
    """
    batch = example_input[:_EXAMPLES]
    with evaluating(model), _Follow(model) as follow:
        follow.labels.set(batch, [still(size) for size in batch.shape])
        try:
            output = model(batch)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"The model could not be followed: it failed on a batch of shape {tuple(batch.shape)} "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]})."
            ) from error
    for tensor in tree_leaves(output):
        if isinstance(tensor, Tensor):
            for axis in follow.labels.of(tensor):
                _hold(axis)
    return settle(follow.named, follow.labels, follow.sites)


def _hold(axis: Any) -> None:
    for segment in resolved(axis):
        for atom in segment:
            atom.hold()


class _Follow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.labels = Labels()
        self.weights: Mapping[int, str] = {
            id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        self.named: dict[str, Label] = {}
        self.sites: list[tuple[int, str, Label]] = []
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        step = Step(func, args, kwargs or {}, self.labels)
        for tensor in step.tensors():
            self._name(tensor)
        result = func(*args, **(kwargs or {}))
        step.outputs = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        if step.outputs:
            self._note(func, step)
        self.count += 1
        return result

    def _name(self, tensor: Tensor) -> None:
        """Give a weight that is met for the first time free axes."""
        name = self.weights.get(id(tensor))
        if name is not None and name not in self.named:
            label = [free(size) for size in tensor.shape]
            self.named[name] = label
            self.labels.set(tensor, label)

    def _note(self, func: Any, step: Step) -> None:
        rule = rule_for(func)
        if rule is None or (step["dim"] is None and step.name in ("max", "min")):
            self._unknown(func, step)
            return
        try:
            found = rule(step)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            self._unknown(func, step)  # an unusual form of a known operation
            return
        several = found if found and isinstance(found[0], list) else [found]
        for tensor, label in zip(step.outputs, several, strict=False):
            self.labels.set(tensor, label)
        for tensor in step.outputs[len(several) :]:
            self.labels.set(tensor, [still(size) for size in tensor.shape])
        self.labels.virtual += step.reduced
        self.sites.append((self.count, step.name, several[0]))

    def _unknown(self, func: Any, step: Step) -> None:
        """Fine as long as no unit that may move goes in."""
        for tensor in step.tensors():
            if not all(map(is_still, self.labels.of(tensor))):
                raise InputError(
                    f"The model could not be followed: there is no rule for how hidden units run through "
                    f"{func} (a tensor of shape {tuple(tensor.shape)} goes in); its permutations are unknown."
                )
        for tensor in step.outputs:
            self.labels.set(tensor, [still(size) for size in tensor.shape])
