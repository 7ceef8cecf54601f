"""Artifacts of older code: no stage of today asks for them, so nothing reads them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remanence.errors import RunFolderError
from remanence.experiments.shadows import Shadow
from remanence.stages import Stage, Store
from remanence.storage import open_folder
from remanence.study.barrier_stage import BarrierStage
from remanence.study.figure_stage import FigureStage
from remanence.study.figures import FIGURES
from remanence.study.forget_stages import Compositions, Forget, Ranks, Score
from remanence.study.group_stages import Grams, Group
from remanence.study.train_stages import BaseModel, Oracle, Train
from remanence.study.unlearn_stages import ForgetPaths, Measure, Tune, Unlearn

KINDS: dict[str, type[Stage]] = {
    stage.kind: stage
    for stage in (
        *(Train, BaseModel, Score, Ranks, Compositions, Forget, Oracle, Measure, Unlearn),
        *(ForgetPaths, Tune, BarrierStage, Grams, Group, Shadow, FigureStage),
    )
}


def outdated(store: Store) -> list[Path]:
    """Artifacts below the current version of their kind, and those made from them; damaged ones are left out."""
    questions: dict[str, Mapping[str, Any]] = {}
    for path in store.artifacts():
        try:
            folder = open_folder(path)
            questions[path.name] = folder.config() | {"kind": folder.kind}
        except RunFolderError:
            continue
    old = {key for key, question in questions.items() if _is_old(question)}
    while more := {
        key
        for key, question in questions.items()
        if key not in old and not old.isdisjoint(question.get("needs", ()))
    }:
        old |= more
    return [store.root / key for key in sorted(old)]


def _is_old(question: Mapping[str, Any]) -> bool:
    kind = KINDS.get(question["kind"])
    if kind is None:
        return False
    if question.get("version", kind.version) < kind.version:
        return True
    figure = FIGURES.get(question["params"]["figure"]) if kind is FigureStage else None
    return figure is not None and bool(question["params"]["figure_version"] < figure.version)
