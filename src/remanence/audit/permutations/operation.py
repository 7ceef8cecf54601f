"""One tensor operation of a forward pass, and the record of the axes of all tensors in the pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from remanence.audit.permutations.unit_axes import Axis, fixed_axis, resolved

TensorAxes = list[Axis]


class Operation:
    """One operation: its arguments by name, the axes of its inputs, its outputs."""

    def __init__(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], record: AxesRecord
    ) -> None:
        arguments = func._schema.arguments
        self.values = {a.name: a.default_value for a in arguments if a.has_default_value()}
        self.values |= dict(zip((argument.name for argument in arguments), args, strict=False)) | dict(kwargs)
        self.name: str = func._schema.name.removeprefix("aten::")
        self.first: str = arguments[0].name if arguments else ""
        self.record = record
        self.outputs: list[Tensor] = []
        self.reduced: list[TensorAxes] = []
        """Axes of what was averaged inside the operation, which no tensor carries."""

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def axes(self, name: str = "") -> TensorAxes:
        """The axes of an input, by default the first."""
        return self.record.of(self.values[name or self.first])

    def has(self, name: str) -> bool:
        """Whether this argument is a tensor that is not empty."""
        return isinstance(self[name], Tensor) and self[name].numel() > 0

    @property
    def shape(self) -> torch.Size:
        """Shape of the first output."""
        return self.outputs[0].shape

    def tensors(self) -> list[Tensor]:
        """All input tensors."""
        tensors: list[Tensor] = []
        for value in self.values.values():
            items = value if isinstance(value, list | tuple) else [value]
            tensors += [item for item in items if isinstance(item, Tensor)]
        return tensors


class AxesRecord:
    """The axes of every tensor of a pass; keeps the tensors alive, so that each identity stands for one tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, TensorAxes]] = {}
        self.virtual: list[TensorAxes] = []

    def of(self, tensor: Tensor) -> TensorAxes:
        """The tensor's axes; those of a constant are fixed."""
        if id(tensor) not in self._known:
            self.set(tensor, [fixed_axis(size) for size in tensor.shape])
        return [resolved(axis) for axis in self._known[id(tensor)][1]]

    def set(self, tensor: Tensor, axes: TensorAxes) -> None:
        """Record the axes of a tensor. Its previous axes are kept too: it may have been changed in place."""
        if id(tensor) in self._known:
            self.virtual.append(self._known[id(tensor)][1])
        self._known[id(tensor)] = (tensor, axes)

    def everything(self) -> list[TensorAxes]:
        """The axes of every tensor seen."""
        return [axes for _, axes in self._known.values()] + self.virtual
