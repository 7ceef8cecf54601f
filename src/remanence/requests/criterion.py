"""When a request counts as forgotten, and what is measured to find out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from remanence.data import Split
from remanence.experiments import (
    STAY,
    Duration,
    UnlearnSettings,
    curve,
    half_of,
    sampled,
    time_to_unlearn,
)
from remanence.training import Run
from remanence.types import Measurement

SMOOTHED = 3
"""Number of evaluations whose mean is compared with the target: one evaluation hangs on the last few batches."""
ACCURACY_LOSS = 0.02
"""The largest loss of accuracy, on test or retained data, with which unlearning stops: two points."""
MONITORED = ("mia_confidence", "log_odds", "ua", "ra", "test")
SAMPLE = 2000
"""Maximum number of retain and test examples in one evaluation."""
STOPPING_HALF = 0
"""The half of the retain and test data that decides when unlearning stops; the verdict reads the other one."""
DAMAGED = 4.0
"""A model whose excess is this many standard errors too low has not forgotten, but lost what it could do."""
STEPS = "steps"
"""Stands for a metric where there are no reference models: unlearning stops after a number of steps."""


@dataclass(frozen=True)
class Criterion:
    """The model is no surer about the set than models never trained on it, without a loss of accuracy.

    The excess of its log-odds is continuous: shares such as accuracy or the calls of an attack jump with every single
    example.

    Args:
        metric: `excess`; `steps` without reference models.
        target: 0, the mean excess of models never trained on the set; the number of steps for `steps`.
        tolerance: the standard error of the excess, which may be as much above the target. A model that is four times
            as far below the target, and farther than it was above it before unlearning, has been damaged.
        stay: number of consecutive evaluations for which the mean of the last three must hold it.
        accuracy_loss: largest loss of accuracy on test and on retained data at these evaluations.
        not_before: evaluations before this step do not count: the first epoch, and more after a verdict that did not
            confirm an earlier stop.
    """

    metric: Literal["excess", "steps"]
    target: float
    tolerance: float
    stay: int = STAY
    accuracy_loss: float = ACCURACY_LOSS
    not_before: int = 0

    def time(self, rows: Sequence[Measurement]) -> Duration:
        """The step at which it began to hold or, if it never did, the last step."""
        degraded = self._degraded_steps(rows)
        steps, values = curve(rows, "test" if self.metric == STEPS else self.metric)
        if self.metric == STEPS:
            values = [math.inf, *(self.target if step >= self.target else math.inf for step in steps[1:])]
        else:
            values = _smoothed(values)
        if len(steps) < self.stay:
            return Duration(float(steps[-1] if steps else 0), reached=False)
        fine = [
            self.is_close(value, values[0]) and step not in degraded and step >= self.not_before
            for step, value in zip(steps, values, strict=True)
        ]
        return time_to_unlearn(
            steps, [0.0 if now else 1.0 for now in fine], 0.0, tolerance=0.0, stay=self.stay
        )

    def holds(self, rows: Sequence[Measurement]) -> bool:
        return self.time(rows).reached

    def is_close(self, value: float, before: float = math.inf) -> bool:
        """Whether a value is close enough, for a model that had another one before unlearning."""
        above = before - self.target if math.isfinite(before) else 0.0
        lowest = self.target + min(0.0, above) - max(DAMAGED * self.tolerance, above)
        return lowest - 1e-9 <= value <= self.target + self.tolerance + 1e-9

    def sentence(self) -> str:
        floor = (
            f"accuracy on test and on retained data is at most {100 * self.accuracy_loss:.2g} points below its "
            "initial value"
        )
        if self.metric == STEPS:
            return f"{self.target:.0f} steps were taken or more, and {floor} in {self.stay} consecutive evaluations"
        return (
            "the excess of the log-odds of the true class (minus the loss, if there are no classes) over those of "
            f"models never trained on these examples, averaged over {SMOOTHED} evaluations, is at most "
            f"{self.tolerance:.2g}, its standard error, {self.stay} times in a row, and {floor}"
            + (f", at step {self.not_before} or later" if self.not_before else "")
        )

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence()}

    def _degraded_steps(self, rows: Sequence[Measurement]) -> set[int]:
        """Steps with too low an accuracy on test or retained data; training on mostly repairs it."""
        curves = [curve(rows, metric) for metric in ("test", "ra")]
        return {
            step
            for steps, accuracy in curves
            for step, value in zip(steps, accuracy, strict=True)
            if value < accuracy[0] - self.accuracy_loss - 1e-9
        }


def _smoothed(values: Sequence[float]) -> list[float]:
    """The mean of each value and the two before it; the first, before unlearning, stands alone."""
    later = values[1:]
    means = (later[max(0, i + 1 - SMOOTHED) : i + 1] for i in range(len(later)))
    return [*values[:1], *(math.fsum(part) / len(part) for part in means)]


def stopping_split(split: Split, seed: int) -> Split:
    """The data that decide when unlearning stops: a sample of one half of the retain and test examples."""
    return sampled(half_of(split, STOPPING_HALF), SAMPLE, seed)


def criterion_for(error: float, before: float = 0.0, epoch: int = 0) -> Criterion:
    """The criterion for a set whose excess has this standard error.

    Unless it holds before unlearning, it does not count before the first epoch has ended: after a few steps the outputs
    have moved, but return when training goes on.

    Args:
        error: standard error of the excess.
        before: the excess before unlearning.
        epoch: steps of a pass over the retained data.
    """
    criterion = Criterion("excess", 0.0, error)
    return criterion if criterion.is_close(before) else replace(criterion, not_before=epoch)


def after_steps(steps: int) -> Criterion:
    """Stop after this many steps, at the first evaluations at which accuracy is back."""
    return Criterion("steps", float(steps), 0.0)


def monitored_settings(
    run: Run, method: str, options: Mapping[str, Any], budget: int, seed: int, further: Sequence[str] = ()
) -> UnlearnSettings:
    """Settings that unlearn for at most `budget` steps and measure what the criterion needs, and `further` metrics."""
    return UnlearnSettings(
        method,
        options,
        steps=budget,
        seed=seed,
        metrics=(*MONITORED, *further),
        at=_evaluation_steps(run, budget),
        sample=SAMPLE,
        half=STOPPING_HALF,
    )


def _evaluation_steps(run: Run, budget: int) -> tuple[int, ...]:
    """Eight evaluations per epoch at first, where the metrics change fast; four after an epoch, two after five."""
    epoch = run.settings.recipe.steps_per_epoch(len(run.data()[0]))
    steps, step = {budget}, 0
    while step <= budget:
        steps.add(step)
        step += max(1, epoch // (8 if step < epoch else 4 if step < 5 * epoch else 2))
    return tuple(sorted(steps))
