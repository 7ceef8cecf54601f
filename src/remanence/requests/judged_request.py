"""One request after unlearning: its audit, its verdict, its outcome, and what it really took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from remanence.audit.relearning import Relearn
from remanence.experiments import Duration, curve
from remanence.experiments.unlearn import Unlearned
from remanence.forecast import ReferencePool
from remanence.requests.outcome import Outcome, judge
from remanence.requests.plan import Plan
from remanence.requests.request import ForgetOptions
from remanence.requests.request_audit import audit_request
from remanence.requests.verdict import Verdict, without_models
from remanence.requests.verdict_signals import judge_model
from remanence.training import Run
from remanence.training.train_run import Progress
from remanence.types import Measurement

_ACCURACIES = {"retained": "ra", "test": "test"}


class Stopwatch:
    """Measures the steps of unlearning; a resumed request counts its earlier steps at the same speed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._started = time.perf_counter()
        self._first: int | None = None
        self._last = 0
        self._elapsed = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Pass the progress on."""
        self._first = done if self._first is None else self._first
        self._last, self._elapsed = done, time.perf_counter() - self._started
        self._progress(done, total)

    def seconds(self, steps: int) -> float | None:
        """The duration of this many steps; None if no step was taken here."""
        if self._first is None:
            return None
        return self._elapsed * steps / (self._last - self._first + 1)


@dataclass(frozen=True, eq=False)
class JudgedRequest:
    """A request after unlearning.

    Args:
        plan: what was expected.
        audit: one row per metric.
        reasons: metrics that could not be measured, with the reasons.
        verdict: what the signals say that did not decide when unlearning stopped.
        actual: steps, time and cost, the criterion and the verdict, as JSON values.
        outcome: what follows.
    """

    plan: Plan
    audit: list[dict[str, Any]]
    reasons: list[str]
    verdict: Verdict
    actual: dict[str, Any]
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Attempt:
    """An unlearning that has ended, whose requests are judged one by one.

    Args:
        run: the run before unlearning.
        pool: its reference models; None if there are none.
        options: how it was carried out.
        unlearned: the model after unlearning, and what was measured on the way.
        whole: the plan of all requests together.
        oracle: a run that was retrained without the examples.
        seconds: duration of the unlearning steps; None if they were all taken by an earlier call.
        looks: number of verdicts so far, this one included.
    """

    run: Run
    pool: ReferencePool | None
    options: ForgetOptions
    unlearned: Unlearned
    whole: Plan
    oracle: Run | None
    seconds: float | None
    looks: int

    def judge(self, plan: Plan, relearning: Relearn | None) -> JudgedRequest:
        """Audit one request, and judge it.

        Args:
            plan: the plan of the request, `whole` or a part of it.
            relearning: fine-tunes copies of the models; None to skip it.
        """
        before, after = self.run.model(), self.unlearned.model
        audit, reasons = audit_request(self.run, plan, after, self.oracle, relearning)
        verdict = self._verdict(plan, before, after)
        duration = self._duration()
        actual = self._actual(duration, verdict)
        if self.options.method == "retrain":
            return JudgedRequest(plan, audit, reasons, verdict, actual, Outcome.RETRAINED)
        outcome = judge(
            reached=duration.reached,
            beyond=() if plan.expected is None else plan.expected.beyond,
            audit=audit,
            verdict=verdict,
        )
        return JudgedRequest(plan, audit, reasons, verdict, actual, outcome)

    def _verdict(self, plan: Plan, before: nn.Module, after: nn.Module) -> Verdict:
        if self.pool is None:
            return without_models(self.looks)
        split = self.run.split(plan.request.forget_set)
        return judge_model(before, after, split, self.pool, seed=self.options.seed, looks=self.looks)

    def _duration(self) -> Duration:
        criterion = self.whole.criterion
        if self.options.method != "retrain":
            return criterion.time(self.unlearned.rows)
        values = {row.metric: row.value for row in self.unlearned.rows}
        reached = criterion.metric in values and criterion.is_close(values[criterion.metric])
        return Duration(float(self.unlearned.steps), reached=reached)

    def _actual(self, duration: Duration, verdict: Verdict) -> dict[str, Any]:
        forecast, retrained = self.whole.forecast, self.options.method == "retrain"
        ended = duration.reached or duration.value >= forecast.high
        inside = ended and forecast.low <= duration.value <= forecast.high
        return {
            "reached": duration.reached,
            "steps": duration.value,
            "stopped_at": self.unlearned.steps,
            "budget": self.unlearned.steps if retrained else self.whole.budget,
            "inside_interval": bool(inside) and not retrained,
            "costs": self._costs(),
            "criterion": _criterion_row(self.whole, self.unlearned.rows),
            "lowest_accuracy": self._lowest_accuracy(),
            "verdict": verdict.document(),
        }

    def _lowest_accuracy(self) -> dict[str, float]:
        """The lowest accuracy on retained and test data at the evaluations on the way, the last one included."""
        curves = {name: curve(self.unlearned.rows, metric)[1] for name, metric in _ACCURACIES.items()}
        return {name: min(values) for name, values in curves.items() if values}

    def _costs(self) -> list[dict[str, Any]]:
        """Steps, seconds and share of retraining: as forecast, as it was, and for retraining."""
        plan, retraining = self.whole, self.whole.retraining
        rows = (
            ("forecast", plan.forecast.steps, 60 * plan.minutes(plan.forecast.steps)),
            ("actual", float(self.unlearned.steps), self.seconds),
            ("retraining", float(retraining["steps"]), float(retraining["seconds"])),
        )
        whole = max(float(retraining["seconds"]), 1e-9)
        return [
            {
                "what": what,
                "steps": steps,
                "seconds": seconds,
                "share_of_retraining": None if seconds is None else seconds / whole,
            }
            for what, steps, seconds in rows
        ]


def _criterion_row(plan: Plan, rows: Sequence[Measurement]) -> dict[str, Any] | None:
    """The excess that unlearning stopped on, before and after, in its own units and in standard errors.

    None if it stopped after the forecast steps, because there is nothing to compare with.
    """
    _, values = curve(rows, plan.criterion.metric)
    if plan.expected is None or not values:
        return None
    return {
        "metric": plan.criterion.metric,
        "before": plan.now[plan.criterion.metric],
        "after": values[-1],
        "expected": plan.criterion.target,
        "spread": plan.criterion.tolerance,
        "z": (values[-1] - plan.criterion.target) / plan.criterion.tolerance,
        "decides": "when unlearning stops, not whether the examples are forgotten",
    }
