"""Artifacts of older code: no stage of today asks for them, so nothing finds them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remanence.errors import RunFolderError
from remanence.storage import open_folder
from remanence.study.figure_stage import FIGURE
from remanence.study.figures import FIGURES
from remanence.study.shadow_stages import SHADOW
from remanence.study.stages import StageKind
from remanence.study.stages_of_choice import FORGET, RANKS, SCORE
from remanence.study.stages_of_groups import GRAMS, GROUP
from remanence.study.stages_of_landscape import BARRIER
from remanence.study.stages_of_training import ORACLE, TRAIN
from remanence.study.stages_of_unlearning import MEASURE, TUNE, UNLEARN
from remanence.study.store import Store

KINDS: dict[str, StageKind] = {
    kind.name: kind
    for kind in (
        *(TRAIN, SCORE, RANKS, FORGET, ORACLE, MEASURE, UNLEARN),
        *(TUNE, BARRIER, GRAMS, GROUP, SHADOW, FIGURE),
    )
}


def outdated(store: Store) -> list[Path]:
    """Artifacts below the version that their kind has now, and all that was made from them; not the damaged ones."""
    asked: dict[str, Mapping[str, Any]] = {}
    for path in store.artifacts():
        try:
            folder = open_folder(path)
            asked[path.name] = folder.config() | {"kind": folder.kind}
        except RunFolderError:
            continue
    old = {key for key, question in asked.items() if _is_old(question)}
    while more := {
        key
        for key, question in asked.items()
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
    figure = FIGURES.get(question["params"]["figure"]) if kind is FIGURE else None
    return figure is not None and bool(question["params"]["figure_version"] < figure.version)
