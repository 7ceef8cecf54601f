"""A stage: one piece of work with typed parameters and named inputs, identified by a hash of both."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from remanence.storage import Draft, Folder

NOT_IN_KEY = {"key": False}
"""Metadata of a dataclass field that says nothing about the result, such as where the data lie on this machine."""
IN_KEY_IF_GIVEN = {"key": "if given"}
"""Metadata of a dataclass field that is left out of the key while it is None, so that older keys stay valid."""
Read = Callable[["Stage"], Folder]
"""Opens the finished artifact of one of a stage's inputs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(ABC):
    """One node of the graph. Subclasses are frozen dataclasses that declare their fields and `compute`.

    A field that holds a stage, or a tuple of stages, is an input; every other field is a parameter. Two stages with
    the same key are the same work.

    Args:
        cost: the amount of work relative to other stages, for the time left; not part of the key.
        title: a few words for the progress display; not part of the key.
    """

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    """Raised when the meaning of the artifact changes, so that an old one is not reused."""

    cost: float = field(default=1.0, metadata=NOT_IN_KEY)
    title: str = field(default="", metadata=NOT_IN_KEY)

    @abstractmethod
    def compute(self, draft: Draft, read: Read) -> None:
        """Fill the artifact. The result depends on the parameters and the inputs alone."""

    @cached_property
    def inputs(self) -> Mapping[str, tuple[Stage, ...]]:
        """The stages whose artifacts go in, by the name of their field."""
        return {
            name: value if isinstance(value, tuple) else (value,)
            for name, value in _keyed_fields(self)
            if _is_input(value)
        }

    @cached_property
    def needs(self) -> tuple[Stage, ...]:
        """All inputs, in the order of their fields."""
        return tuple(stage for stages in self.inputs.values() for stage in stages)

    @cached_property
    def params(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        return {name: plain(value) for name, value in _keyed_fields(self) if not _is_input(value)}

    @cached_property
    def key(self) -> str:
        """The name of the artifact: the kind, and a hash of version, parameters and inputs."""
        question = {
            "kind": self.kind,
            "version": self.version,
            "params": self.params,
            "inputs": {name: [stage.key for stage in stages] for name, stages in self.inputs.items()},
        }
        text = json.dumps(question, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def plain(value: Any) -> Any:
    """Settings as JSON values: dataclasses and mappings become objects, tuples and arrays become lists.

    Fields of a dataclass that are marked with `NOT_IN_KEY` are left out.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(inner) for name, inner in _keyed_fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return value


def in_order(goals: Iterable[Stage]) -> list[Stage]:
    """The goals and everything they need, each once, inputs before the stages that use them."""
    ordered: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.key not in ordered:
            for need in stage.needs:
                visit(need)
            ordered.setdefault(stage.key, stage)

    for goal in goals:
        visit(goal)
    return list(ordered.values())


def _keyed_fields(value: Any) -> list[tuple[str, Any]]:
    named = [(f.name, getattr(value, f.name), f.metadata.get("key", True)) for f in fields(value)]
    return [(name, held) for name, held, keyed in named if keyed is True or (keyed and held is not None)]


def _is_input(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(inner, Stage) for inner in value)
    return isinstance(value, Stage)
