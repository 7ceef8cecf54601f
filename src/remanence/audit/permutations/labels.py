"""What is known of the tensors of one pass, and of one operation in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from remanence.audit.permutations.axes import Axis, resolved, still

Label = list[Axis]


class Step:
    """One operation: its arguments by name, the labels of its inputs, the shapes of its outputs."""

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], labels: Labels) -> None:
        arguments = op._schema.arguments
        self.values = {each.name: each.default_value for each in arguments if each.has_default_value()}
        self.values |= dict(zip((each.name for each in arguments), args, strict=False)) | dict(kwargs)
        self.name: str = op._schema.name.removeprefix("aten::")
        self.first: str = arguments[0].name if arguments else ""
        self.labels = labels
        self.outputs: list[Tensor] = []
        self.reduced: list[Label] = []
        """Labels that no tensor carries, of what was averaged inside the operation."""

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def label(self, name: str = "") -> Label:
        """The axes of an input, by default the first."""
        return self.labels.of(self.values[name or self.first])

    def has(self, name: str) -> bool:
        """Whether this argument is a tensor with something in it."""
        return isinstance(self[name], Tensor) and self[name].numel() > 0

    @property
    def shape(self) -> torch.Size:
        """Of the first output."""
        return self.outputs[0].shape

    def tensors(self) -> list[Tensor]:
        """All tensors that went in."""
        found: list[Tensor] = []
        for value in self.values.values():
            several = value if isinstance(value, list | tuple) else [value]
            found += [each for each in several if isinstance(each, Tensor)]
        return found


class Labels:
    """What is known of every tensor of a pass; keeps them alive, so that an identity names one tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, Label]] = {}
        self.virtual: list[Label] = []

    def of(self, tensor: Tensor) -> Label:
        """The tensor's axes; those of a constant stay where they are."""
        if id(tensor) not in self._known:
            self.set(tensor, [still(size) for size in tensor.shape])
        return [resolved(axis) for axis in self._known[id(tensor)][1]]

    def set(self, tensor: Tensor, label: Label) -> None:
        """Note the axes of a tensor. What it was known by before counts too: it may have been changed in place."""
        if id(tensor) in self._known:
            self.virtual.append(self._known[id(tensor)][1])
        self._known[id(tensor)] = (tensor, label)

    def everything(self) -> list[Label]:
        """The label of every tensor seen."""
        return [label for _, label in self._known.values()] + self.virtual
