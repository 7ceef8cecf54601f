"""Try one configuration of a method: how near to the oracles it comes, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from remanence.data import Split
from remanence.errors import NumericalError
from remanence.storage import SEAL
from remanence.training import Run, open_run
from remanence.trials.schedule import affordable_steps, sampled
from remanence.trials.trial import measure, run_trial
from remanence.types import ForgetSet, Measurement, as_ids
from remanence.unlearning import make_method

_EVALUATIONS = 24


@dataclass(frozen=True)
class Arena:
    """Where configurations are tried; small enough to be sent to another process, which opens the run itself.

    Args:
        run: the run's folder.
        forget: name of the forget set.
        ids: who is to be forgotten.
        method: to try.
        options: what is held fixed.
        metrics: to compare with the oracles.
        seeds: repetitions of each configuration.
        sample: measure on at most so many retain and test examples; on all when None.
    """

    run: Path
    forget: str
    ids: tuple[int | str, ...]
    method: str
    options: Mapping[str, Any]
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]
    sample: int | None

    def __getstate__(self) -> dict[str, Any]:
        """What was asked, without the data that have been loaded since."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def opened(self) -> Run:
        """The run."""
        path = self.run.resolve()
        return _opened(path, (path / SEAL).stat().st_mtime_ns if (path / SEAL).exists() else 0)

    @cached_property
    def split(self) -> Split:
        """The run's data and the forget set."""
        return self.opened.split(ForgetSet(self.forget, as_ids(self.ids)))

    @cached_property
    def watched(self) -> Split:
        """What is measured on: the same examples for oracles and trials."""
        return self.split if self.sample is None else sampled(self.split, self.sample, self.seeds[0])

    def levels(self, runs: Sequence[Run]) -> dict[str, float]:
        """The mean of each metric over some runs."""
        rows = [
            row
            for run in runs
            for row in measure(run.model(), self.watched, self.metrics, step=0, seed=self.seeds[0])
        ]
        return {name: float(np.mean([r.value for r in rows if r.metric == name])) for name in self.metrics}

    def attempt(self, options: Mapping[str, float], goal: Mapping[str, float]) -> dict[str, Any]:
        """`steps`, `balance` and `diverged` of one configuration, averaged over seeds."""
        method = make_method(self.method, {**self.options, **options}, self.opened.settings.recipe)
        training = method.begin(self.opened.model(), self.split, seed=self.seeds[0])
        at = affordable_steps(
            training.total_steps,
            batch_size=min(method.recipe.batch_size, len(training.examples)),
            watched=len(self.watched.train) + len(self.watched.test),
            most=_EVALUATIONS,
        )
        try:
            curves = [balance(self._trial(method, set(at.tolist()), seed), goal) for seed in self.seeds]
        except NumericalError:
            return {"steps": [], "balance": [], "diverged": True}
        mean = np.mean([[value for _, value in curve] for curve in curves], axis=0)
        # step 0 is the model before unlearning, the same for every configuration
        return {"steps": at[1:].tolist(), "balance": mean[1:].tolist(), "diverged": False}

    def _trial(self, method: Any, at: set[int], seed: int) -> list[Measurement]:
        return run_trial(
            self.opened.model(), method, self.split, self.metrics, at=at, watched=self.watched, seed=seed
        )


@lru_cache(maxsize=1)
def _opened(path: Path, written: int) -> Run:
    """Once a process, however many configurations it tries: opening reads the data. A run made anew is another."""
    return open_run(path)


def balance(rows: Sequence[Measurement], goal: Mapping[str, float]) -> list[tuple[int, float]]:
    """At each step, 1 minus the mean absolute distance of the metrics to their goal."""
    steps = sorted({row.step for row in rows})
    gaps = {
        step: float(np.mean([abs(row.value - goal[row.metric]) for row in rows if row.step == step]))
        for step in steps
    }
    return [(step, 1.0 - gap) for step, gap in gaps.items()]
