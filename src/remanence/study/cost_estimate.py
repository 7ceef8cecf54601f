"""The cost of a study, from a few steps of training on this machine."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from remanence.stages import Stage, Store
from remanence.study.running import Planned
from remanence.tasks import TaskSource
from remanence.training import train_steps

_STEPS = 4
_LIGHT = 0.5
"""Seconds of a stage that touches no model."""


@dataclass(frozen=True)
class CostEstimate:
    """What is to be expected.

    Args:
        seconds: of every stage, by its key.
        work: their sum.
        wall: time until the last one ends, with the given number of workers.
    """

    seconds: Mapping[str, float]
    work: float
    wall: float


def estimate_cost(todo: Sequence[Stage], workers: int) -> CostEstimate:
    """Time a few training steps of every task among these stages, and add up."""
    rates = _rates(todo)
    seconds = {stage.key: _LIGHT + stage.cost * rates.get(_speed(stage), 0.0) for stage in todo}
    return CostEstimate(seconds, sum(seconds.values()), makespan(todo, seconds, workers))


def cost_document(planned: Sequence[Planned], store: Store, workers: int) -> dict[str, Any]:
    """The stages of some studies, finished and missing, and their expected cost, as JSON values."""
    finished, todo = store.survey([study.goal for study in planned])
    expected = estimate_cost(todo, workers)
    done = {stage.key for stage in finished}
    return {
        "studies": [entry.study.name for entry in planned],
        "workers": workers,
        "reused": len(finished),
        "to_compute": len(todo),
        "core_seconds": round(expected.work, 1),
        "wall_seconds": round(expected.wall, 1),
        "stages": [
            {
                "key": stage.key,
                "kind": stage.kind,
                "title": stage.title,
                "done": stage.key in done,
                "seconds": round(expected.seconds.get(stage.key, 0.0), 1),
                "needs": [need.key for need in stage.needs],
            }
            for stage in [*finished, *todo]
        ],
    }


def makespan(todo: Sequence[Stage], seconds: Mapping[str, float], workers: int) -> float:
    """When the last stage ends if each begins as soon as a worker is free and its inputs are finished."""
    ends: dict[str, float] = {}
    free = [0.0] * workers
    heapq.heapify(free)
    for stage in todo:  # in the order in which the scheduler would begin them
        ready = max((ends.get(need.key, 0.0) for need in stage.needs), default=0.0)
        begin = max(heapq.heappop(free), ready)
        ends[stage.key] = begin + seconds[stage.key]
        heapq.heappush(free, ends[stage.key])
    return max(ends.values(), default=0.0)


def _speed(stage: Stage) -> str:
    """Stages with the same answer train equally fast; empty for one that touches no model."""
    task: TaskSource | None = getattr(stage, "task", None)
    return "" if task is None else repr((task.data, task.model))


def _rates(todo: Iterable[Stage]) -> dict[str, float]:
    tasks = {_speed(stage): getattr(stage, "task", None) for stage in todo}
    return {name: _seconds_per_example(task) for name, task in tasks.items() if task is not None}


def _seconds_per_example(source: TaskSource) -> float:
    task = source.open()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = train_steps(task.new_model(seed=0), task.train, task.recipe, seed=0)
        next(steps)
        started, taken = time.perf_counter(), 0
        for _ in zip(range(_STEPS), steps, strict=False):
            taken += 1
        seconds = time.perf_counter() - started
        return seconds / (taken * min(task.recipe.batch_size, len(task.train)))
    finally:
        torch.set_num_threads(threads)
