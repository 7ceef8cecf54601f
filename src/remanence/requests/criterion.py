"""When a request counts as forgotten, and what is measured to find out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
from remanence.forecast import Expectation
from remanence.training import Run
from remanence.types import Measurement

SMALL = 20
"""Below this many examples, one example is more than five points, and the criterion uses a continuous metric."""
TOLERANCE = 0.03
"""Stop within three points of the expected value, so that the result is within five points of a retrained model."""
SPREADS = 2.0
"""Standard deviations between models never trained on a small set that count as close."""
ACCURACY_LOSS = 0.02
"""The largest loss of accuracy, on test or retained data, with which unlearning stops: two points."""
MONITORED = ("mia_confidence", "log_odds", "ua", "ra", "test")
SAMPLE = 2000
"""Maximum number of retain and test examples in one evaluation."""
STOPPING_HALF = 0
"""The half of the retain and test data that decides when unlearning stops; the verdict reads the other one."""
StoppingMetric = Literal["mia_confidence", "log_odds"]


@dataclass(frozen=True)
class Criterion:
    """A metric stays close to the value of models never trained on the set, without a loss of test accuracy.

    Args:
        metric: `mia_confidence`, the paper's attack, or `log_odds` for small sets.
        target: the expected value of a model never trained on the set.
        tolerance: largest difference from the target, on both sides.
        stay: number of consecutive evaluations for which it must hold.
        accuracy_loss: largest loss of accuracy on test and on retained data at these evaluations.
        not_before: evaluations before this step do not count; after a verdict that did not confirm an earlier stop.
    """

    metric: StoppingMetric
    target: float
    tolerance: float
    stay: int = STAY
    accuracy_loss: float = ACCURACY_LOSS
    not_before: int = 0

    def time(self, rows: Sequence[Measurement]) -> Duration:
        """The step at which it began to hold or, if it never did, the last step."""
        degraded = self._degraded_steps(rows)
        steps, values = curve(rows, self.metric)
        if len(steps) < self.stay:
            return Duration(float(steps[-1] if steps else 0), reached=False)
        usable = [
            math.inf if step in degraded or step < self.not_before else value
            for step, value in zip(steps, values, strict=True)
        ]
        return time_to_unlearn(steps, usable, self.target, tolerance=self.tolerance, stay=self.stay)

    def holds(self, rows: Sequence[Measurement]) -> bool:
        return self.time(rows).reached

    def is_close(self, value: float) -> bool:
        return abs(value - self.target) <= self.tolerance + 1e-9

    def sentence(self) -> str:
        quantity = {
            "mia_confidence": "the share that a membership attack calls never trained on",
            "log_odds": "the mean log-odds of the true class (minus the loss, if there are no classes), relative to "
            "test examples,",
        }[self.metric]
        return (
            f"{quantity} is within {self.tolerance:.2g} of {self.target:.2f}, the value of models never trained on "
            f"these examples, in {self.stay} consecutive evaluations, and accuracy on test and on retained data is at "
            f"most {100 * self.accuracy_loss:.2g} points below its initial value"
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


def stopping_split(split: Split, seed: int) -> Split:
    """The data that decide when unlearning stops: a sample of one half of the retain and test examples."""
    return sampled(half_of(split, STOPPING_HALF), SAMPLE, seed)


def criterion_for(size: int, expected: Expectation) -> Criterion:
    """Three points of the membership attack; two standard deviations of the log-odds for a small set."""
    if size < SMALL:
        return Criterion("log_odds", expected.log_odds, SPREADS * expected.log_odds_spread)
    return Criterion("mia_confidence", expected.mia, TOLERANCE)


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
    """Eight evaluations per epoch for two and a half epochs, where the metrics change fast, then four."""
    epoch = run.settings.recipe.steps_per_epoch(len(run.data()[0]))
    dense, sparse = max(1, epoch // 8), max(1, epoch // 4)
    early = min(budget, 20 * dense)
    return tuple(sorted({*range(0, early + 1, dense), *range(early, budget + 1, sparse), budget}))
