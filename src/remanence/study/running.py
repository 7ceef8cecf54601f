"""Run studies: plan, compute what is missing, say what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remanence.storage import Folder
from remanence.storage.lock import exclusive
from remanence.study.checking import check
from remanence.study.executors import make_executor
from remanence.study.figure_stage import figure_stage
from remanence.study.scheduler import Tally, Watcher, compute_stages
from remanence.study.settings import Study
from remanence.study.stages import Stage
from remanence.study.store import Store

VARIABLE = "REMANENCE_STORE"


def store_folder(store: str | Path | None = None) -> Path:
    """Where artifacts are kept: the folder given, else $REMANENCE_STORE, else a cache folder."""
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
    goal: Stage


def plan(study: Study) -> Planned:
    """Check a study and lay out its stages; nothing is computed."""
    check(study)
    return Planned(study, figure_stage(study))


@dataclass(frozen=True)
class Ran:
    """What running some studies came to."""

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
) -> Ran:
    """Compute what is missing of some studies, their common stages once."""
    started = time.perf_counter()
    made = make_executor(executor, store.root, workers=workers, address=address)
    store.claim()
    sentence = f"Another study is running in {store.root}; wait for it, or use another --store."
    with exclusive(store.root / ".lock", sentence):
        store.sweep()
        goals = [each.goal for each in planned]
        tally = compute_stages(goals, store, made, watcher)
    return Ran(tally, time.perf_counter() - started)


def result_of(planned: Planned, store: Store) -> tuple[Folder, dict[str, Any]] | None:
    """A study's finished figure and its document; none when it has not been computed."""
    if not store.path(planned.goal).exists():
        return None
    folder = store.get(planned.goal)
    return folder, folder.document("results")
