"""A stage: one piece of work, named by the hash of everything that goes into it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from remanence.storage import Draft, Folder

Compute = Callable[[Draft, Mapping[str, Any], Sequence[Folder]], None]
"""Fills a draft from the stage's parameters and the artifacts it needs. Must be importable by name."""


@dataclass(frozen=True)
class StageKind:
    """What stages of one sort do.

    Args:
        name: what a person calls it.
        version: raise it when the meaning of the artifact changes, so that old ones are not taken for new.
        compute: fills the artifact.
    """

    name: str
    version: int
    compute: Compute


@dataclass(frozen=True, eq=False)
class Stage:
    """One node of the graph. Two stages with the same key are the same work.

    Args:
        kind: what is done.
        params: with which settings; JSON values only.
        needs: stages whose artifacts go in, in the order `compute` expects.
        cost: roughly how much work it is, relative to the others; only for telling the time left.
        title: a few words for a person; not part of the question.
    """

    kind: StageKind
    params: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[Stage, ...] = ()
    cost: float = 1.0
    title: str = ""

    @cached_property
    def key(self) -> str:
        """The name of the artifact: kind, and a hash of version, parameters and inputs."""
        question = {
            "kind": self.kind.name,
            "version": self.kind.version,
            "params": self.params,
            "needs": [stage.key for stage in self.needs],
        }
        text = json.dumps(question, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return f"{self.kind.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def in_order(goals: Iterable[Stage]) -> list[Stage]:
    """The goals and all they need, each once, inputs before what uses them."""
    ordered: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.key not in ordered:
            for need in stage.needs:
                visit(need)
            ordered.setdefault(stage.key, stage)

    for goal in goals:
        visit(goal)
    return list(ordered.values())
