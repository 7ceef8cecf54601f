"""Train the shadow models that an audit with U-LiRA needs; finished ones are kept and used again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from remanence.audit import ShadowTable
from remanence.audit.auditing import recipe_key
from remanence.errors import InputError
from remanence.experiments.shadows import plan_shadows, read_shadows, shadow_stages
from remanence.stages import Store, run_stages
from remanence.training import Run
from remanence.types import ForgetSet

CACHE = Path(".remanence")


def train_shadows(
    runs: Sequence[Run],
    forget_set: ForgetSet,
    *,
    shadows: int | None = None,
    budget: float | None = None,
    cache: Path = CACHE,
    workers: int | None = None,
    executor: str = "process",
    address: str | None = None,
    seed: int = 0,
    note: Callable[[str], None] = lambda sentence: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ShadowTable:
    """Train shadow models for runs that were trained and unlearned in the same way, except for their seeds.

    Args:
        runs: the runs to audit.
        forget_set: the examples that they should have forgotten.
        shadows: number of shadow models, an even number; or
        budget: as many as can be trained in this many minutes.
        cache: folder of the finished shadow models.
        workers: number of processes; one per core by default.
        executor: `process` for processes of this machine, or `ray`.
        address: address of a running Ray cluster; by default Ray is started on this machine.
        seed: random seed of the shadow models.
        note: called with the cost before the training.
        progress: called with the shadow models that exist and their total number.
    """
    if len({recipe_key(run) for run in runs}) > 1:
        raise InputError(
            "Shadow models are made as the audited run was; audit runs that were made differently one by one."
        )
    processes = (os.cpu_count() or 1) if workers is None else workers
    first = shadow_stages(runs[0], forget_set, 1, seed=seed)[0]
    seconds = None if budget is None else budget * 60 * processes
    plan = plan_shadows(first.task(), first.split(), first.steps, shadows=shadows, budget=seconds)
    stages, store = shadow_stages(runs[0], forget_set, plan.shadows, seed=seed), Store(cache / "shadows")
    store.sweep()
    finished = sum(store.holds(stage) for stage in stages)
    note(f"{plan.sentence(processes)} on {processes} processes; {finished} of them are already in {cache}.")
    done = iter(range(finished + 1, plan.shadows + 1))
    progress(finished, plan.shadows)
    run_stages(
        stages,
        store,
        workers=runs[0].workers(processes),
        executor=executor,
        address=address,
        on_done=lambda stage: progress(next(done), plan.shadows),
    )
    return read_shadows(store, stages)
