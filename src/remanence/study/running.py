"""Run studies: plan, compute the missing stages, read the result."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.stages import Store, Tally, Watcher, compute_stages
from remanence.stages.executors import make_executor
from remanence.storage import Folder
from remanence.storage.lock import exclusive
from remanence.study.checking import check
from remanence.study.figure_stage import FigureStage, figure_stage
from remanence.study.settings import Study

VARIABLE = "REMANENCE_STORE"


def store_folder(store: str | Path | None = None) -> Path:
    """The folder of the artifacts: the one given, else $REMANENCE_STORE, else a cache folder."""
    if store is not None:
        return Path(store).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "remanence" / "studies"


@dataclass(frozen=True)
class Planned:
    """A study and the stage it ends in."""

    study: Study
    goal: FigureStage


def plan(study: Study) -> Planned:
    """Check a study and build its stages; nothing is computed."""
    check(study)
    return Planned(study, figure_stage(study))


@dataclass(frozen=True)
class StudyRun:
    """The counts and the wall time of a run of some studies."""

    tally: Tally
    seconds: float


def run_planned(
    planned: Sequence[Planned],
    store: Store,
    *,
    executor: str = "process",
    workers: int = 1,
    address: str | None = None,
    watcher: Watcher | None = None,
) -> StudyRun:
    """Compute the missing stages of some studies, common ones once."""
    started = time.perf_counter()
    chosen = make_executor(executor, store.root, workers=workers, address=address)
    store.claim()
    refusal = f"Another study is running in {store.root}; wait for it, or use another store."
    with exclusive(store.root / ".lock", refusal):
        store.sweep()
        goals = [study.goal for study in planned]
        tally = compute_stages(goals, store, chosen, watcher)
    return StudyRun(tally, time.perf_counter() - started)


def result_of(planned: Planned, store: Store) -> tuple[Folder, dict[str, Any]] | None:
    """A study's finished figure and its document; None when it has not been computed."""
    if not store.path(planned.goal).exists():
        return None
    folder = store.get(planned.goal)
    return folder, folder.document("results")
