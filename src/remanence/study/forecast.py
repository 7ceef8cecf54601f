"""What a study will take, from a few steps of training on this machine."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from remanence.study.material import Params, examples_of, new_model, recipe_of
from remanence.study.stages import Stage
from remanence.training import Recipe, train_steps

_STEPS = 4
_LIGHT = 0.5
"""Seconds for a stage that touches no model."""


@dataclass(frozen=True)
class Estimate:
    """What is to be expected.

    Args:
        seconds: of every stage, by its key.
        work: all of them added up.
        wall: until the last one ends, with so many workers.
    """

    seconds: Mapping[str, float]
    work: float
    wall: float


def estimate(todo: Sequence[Stage], workers: int) -> Estimate:
    """Time a few training steps of every model and data set among these stages, and add up."""
    rates = _rates(todo)
    seconds = {stage.key: _expected(stage, rates) for stage in todo}
    return Estimate(seconds, sum(seconds.values()), makespan(todo, seconds, workers))


def makespan(todo: Sequence[Stage], seconds: Mapping[str, float], workers: int) -> float:
    """When the last stage ends if each is begun as soon as a worker is free and its inputs are there."""
    ends: dict[str, float] = {}
    free = [0.0] * workers
    heapq.heapify(free)
    for stage in todo:  # in the order in which the scheduler would begin them
        ready = max((ends.get(need.key, 0.0) for need in stage.needs), default=0.0)
        begin = max(heapq.heappop(free), ready)
        ends[stage.key] = begin + seconds[stage.key]
        heapq.heappush(free, ends[stage.key])
    return max(ends.values(), default=0.0)


def _rates(todo: Iterable[Stage]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for stage in todo:
        name = _setting(stage)
        if name is not None and name not in rates and "recipe" in stage.params:
            rates[name] = _seconds_an_example(stage.params)
    return rates


def _expected(stage: Stage, rates: Mapping[str, float]) -> float:
    name = _setting(stage)
    return _LIGHT if name is None else _LIGHT + stage.cost * rates.get(name, 0.0)


def _setting(stage: Stage) -> str | None:
    """Stages with the same answer train equally fast."""
    if "model" not in stage.params:
        return None
    return json.dumps([stage.params["data"]["digest"], stage.params["model"]], sort_keys=True)


def _seconds_an_example(params: Params) -> float:
    train, _ = examples_of(params)
    recipe: Recipe = recipe_of(params)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        steps = train_steps(new_model(params, train), train, recipe, seed=0)
        next(steps)
        started, taken = time.perf_counter(), 0
        for _ in zip(range(_STEPS), steps, strict=False):
            taken += 1
        return (time.perf_counter() - started) / (taken * min(recipe.batch_size, len(train)))
    finally:
        torch.set_num_threads(threads)
