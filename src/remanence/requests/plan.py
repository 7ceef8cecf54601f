"""The plan of a request: difficulty, forecast, cost and a recommendation, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import rankdata

from remanence.experiments import measure, sampled
from remanence.forecast import Expectation, Forecast, difficulty_of
from remanence.requests.calibration import Calibration, read_calibration
from remanence.requests.criterion import MONITORED, SAMPLE, SMALL, SPREADS, Criterion, criterion_for
from remanence.requests.request import Request, model_hash
from remanence.requests.request_ledger import bound_document, group_bound, removed_norms
from remanence.scores import ScoreTable, score_table
from remanence.training import Run
from remanence.types import Bound, Trace, positions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Action = Literal["unlearn", "retrain", "nothing"]
PERCENTILES = (10, 25, 50, 75, 90)
_VERBS = {"finetune": "Fine-tune"}
_TOO_EXPENSIVE = 0.8
"""Unlearning that is expected to cost this share of retraining is not worth its uncertainty."""


@dataclass(frozen=True)
class Member:
    """One example of a request: its class, its privacy loss, and the percentage of examples with a lower loss."""

    id: int | str
    label: str
    loss: float
    percentile: float


@dataclass(frozen=True, eq=False)
class Plan:
    """What a request is expected to take.

    Args:
        request: the request.
        model: hash of the model's weights.
        members: the examples, hardest first.
        expected: the expected metrics of a model never trained on them.
        criterion: when they count as forgotten.
        now: metrics of the model before unlearning.
        forecast: steps to unlearn.
        seconds_per_step: of unlearning, on the machine that calibrated.
        retraining: steps and seconds of retraining.
        accuracy: change of test accuracy in the calibration: median, and 5 % and 95 % quantiles.
        bound: on how much this and all earlier requests change the distribution of the trained model.
        method: the unlearning method.
        options: its hyperparameters.
        budget: maximum number of steps.
        action: the recommendation.
        caveats: limits of the plan, as sentences.
    """

    request: Request
    model: str
    members: tuple[Member, ...]
    expected: Expectation
    criterion: Criterion
    now: Mapping[str, float]
    forecast: Forecast
    seconds_per_step: float
    retraining: Mapping[str, float]
    accuracy: tuple[float, float, float]
    bound: Bound
    method: str
    options: Mapping[str, Any]
    budget: int
    action: Action
    caveats: tuple[str, ...]

    @property
    def percentiles(self) -> dict[int, float]:
        """Quantiles of the members' percentiles, by their level in percent."""
        ranks = [member.percentile for member in self.members]
        return {level: float(np.percentile(ranks, level)) for level in PERCENTILES}

    @property
    def share_of_retraining(self) -> float:
        """Expected cost of unlearning relative to retraining."""
        return _share(self.forecast, self.seconds_per_step, self.retraining)

    def recommendation(self) -> str:
        """The recommended action, in one sentence."""
        if self.action == "nothing":
            return (
                "Nothing measurable to remove: the model already behaves on these examples like a model that was never "
                "trained on them. `forget` still excludes them from all further training, confirms this, and writes "
                "the evidence."
            )
        steps = round(self.forecast.steps)
        if self.action == "retrain":
            return (
                f"Retrain: unlearning is expected to take {steps} steps, {self.share_of_retraining:.0%} of the cost of "
                "retraining, and retraining leaves no uncertainty."
            )
        settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.options.items())
        return (
            f"{_VERBS.get(self.method, self.method)} for about {steps} steps with {settings}, "
            f"{self.share_of_retraining:.0%} of the cost of retraining."
        )

    def minutes(self, steps: float) -> float:
        """The duration of this many steps, on the machine that calibrated."""
        return steps * self.seconds_per_step / 60

    def document(self, *, ids: bool = True) -> dict[str, Any]:
        """The plan as JSON values, with or without the single examples."""
        return {
            "request": self.request.forget_set.name,
            "size": len(self.request.ids),
            "model": self.model,
            "percentiles": {str(level): value for level, value in self.percentiles.items()},
            **({"members": [asdict(member) for member in self.members]} if ids else {}),
            "criterion": self.criterion.document(),
            "now": dict(self.now),
            "expected_if_never_trained_on": asdict(self.expected) | {"beyond": list(self.expected.beyond)},
            "forecast": self._forecast_document(),
            "retraining": {"steps": self.retraining["steps"], "minutes": self.retraining["seconds"] / 60},
            "share_of_retraining": self.share_of_retraining,
            "test_accuracy_change": dict(zip(("median", "low", "high"), self.accuracy, strict=True)),
            "bound": bound_document(self.bound, "group loss of all removed examples and of this request"),
            "method": self.method,
            "options": dict(self.options),
            "budget": self.budget,
            "action": self.action,
            "recommendation": self.recommendation(),
            "caveats": list(self.caveats),
        }

    def _forecast_document(self) -> dict[str, Any]:
        forecast = self.forecast
        bounded = math.isfinite(forecast.high)
        return {
            "steps": forecast.steps,
            "low": forecast.low,
            "high": forecast.high if bounded else None,
            "coverage": forecast.coverage,
            "beyond": list(forecast.beyond),
            "minutes": self.minutes(forecast.steps),
            "minutes_low": self.minutes(forecast.low),
            "minutes_high": self.minutes(forecast.high) if bounded else None,
        }

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the forecast beside retraining; on new axes by default."""
        from remanence.display.plots import draw_forecast, on_axes

        return on_axes(lambda axes: draw_forecast(axes, *self._drawn()), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import plan_card

        high = f"{self.forecast.high:.0f}" if math.isfinite(self.forecast.high) else "unknown"
        rows = {
            "request": f"{self.request.forget_set.name} ({len(self.request.ids)} examples)",
            "steps": f"{self.forecast.steps:.0f} ({self.forecast.coverage:.0%}: {self.forecast.low:.0f} to {high})",
            "minutes": f"{self.minutes(self.forecast.steps):.1f}; retraining {self.retraining['seconds'] / 60:.1f}",
            "median percentile": f"harder than {self.percentiles[50]:.0f} % of all examples",
            "forgotten when": self.criterion.sentence(),
            "bound": f"{self.bound.value:.3g} ({self.bound.status})",
        }
        return plan_card(self.recommendation(), rows, self.caveats, self._drawn())

    def _drawn(self) -> tuple[float, float, float, float, float]:
        steps, low, high = self.forecast.steps, self.forecast.low, self.forecast.high
        return steps, low, high, float(self.retraining["steps"]), self.forecast.coverage


def make_plan(
    run: Run, request: Request, calibration: Calibration | None = None, trace: Trace | None = None
) -> Plan:
    """Plan a request; changes nothing.

    Args:
        run: a calibrated run.
        request: the request.
        calibration: the run's calibration; read from its folder by default.
        trace: the run's trace; read from its folder by default.
    """
    calibration = read_calibration(run) if calibration is None else calibration
    trace = run.trace() if trace is None else trace
    settings, table = calibration.settings, score_table(trace)
    assert settings.budget is not None  # a calibration has resolved settings
    expected = calibration.pool.expect(request.ids)
    criterion = criterion_for(len(request.ids), expected)
    now = _measure_now(run, request, settings.seed)
    done = criterion.is_close(now[criterion.metric])
    difficulty = difficulty_of(request.ids, table, done=done)
    forecast = calibration.forecaster(criterion.metric).forecast(difficulty)
    seconds_per_step = calibration.seconds_per_step()
    expensive = _share(forecast, seconds_per_step, calibration.retraining) > _TOO_EXPENSIVE
    return Plan(
        request=request,
        model=model_hash(run),
        members=_members(run, table, request),
        expected=expected,
        criterion=criterion,
        now=now,
        forecast=forecast,
        seconds_per_step=seconds_per_step,
        retraining=calibration.retraining,
        accuracy=_accuracy_changes(calibration),
        bound=group_bound(removed_norms(run, trace, request.ids), trace),
        method=settings.method,
        options=settings.options,
        budget=settings.budget,
        action="nothing" if done else "retrain" if expensive else "unlearn",
        caveats=_caveats(calibration, request, expected, forecast, now),
    )


def _share(forecast: Forecast, seconds_per_step: float, retraining: Mapping[str, float]) -> float:
    return forecast.steps * seconds_per_step / max(retraining["seconds"], 1e-9)


def _measure_now(run: Run, request: Request, seed: int) -> dict[str, float]:
    split = sampled(run.split(request.forget_set), SAMPLE, seed)
    return {row.metric: row.value for row in measure(run.model(), split, MONITORED, step=0, seed=seed)}


def _members(run: Run, table: ScoreTable, request: Request) -> tuple[Member, ...]:
    all_losses = table.column("privacy_loss").values
    rows = positions_of(request.ids, table.ids, what="the trace")
    losses, ranks = all_losses[rows], 100 * (rankdata(all_losses)[rows] - 0.5) / len(all_losses)
    examples = run.clean[0].take(request.ids)
    labels = [examples.class_names[int(label)] for label in examples.labels]
    order = np.argsort(-losses, kind="stable")
    ids = request.ids.tolist()
    return tuple(Member(ids[i], labels[i], float(losses[i]), float(ranks[i])) for i in order)


def _accuracy_changes(calibration: Calibration) -> tuple[float, float, float]:
    changes = [trial.accuracy_change for trial in calibration.trials]
    median, low, high = np.quantile(changes, (0.5, 0.05, 0.95))
    return float(median), float(low), float(high)


def _caveats(
    calibration: Calibration,
    request: Request,
    expected: Expectation,
    forecast: Forecast,
    now: Mapping[str, float],
) -> tuple[str, ...]:
    sentences = [
        f"Outside the calibrated range: {reason}." for reason in (*forecast.beyond, *expected.beyond)
    ]
    if not math.isfinite(forecast.high):
        sentences.append(
            "The interval has no upper end: too many calibration sets were not unlearned within the budget "
            f"of {calibration.settings.budget} steps."
        )
    if calibration.inherited:
        sentences.append("The calibration was made before earlier requests were removed from this model.")
    if len(request.ids) < SMALL:
        sentences.append(_small_request(len(request.ids), expected, now["log_odds"]))
    return tuple(sentences)


def _small_request(size: int, expected: Expectation, log_odds: float) -> str:
    """What can and cannot be shown for a set this small."""
    distance = (log_odds - expected.log_odds) / expected.log_odds_spread
    return (
        f"{size} example{'' if size == 1 else 's'} cannot be measured in points of accuracy: one is "
        f"{100 / size:.0f} points. The criterion is the mean log-odds of the true class instead. Models never trained "
        f"on them differ from each other by ±{expected.log_odds_spread:.2f} (one standard deviation); this model is "
        f"{abs(distance):.1f} standard deviations {'above' if distance > 0 else 'below'} their mean of "
        f"{expected.log_odds:.2f}. It can be shown that the model is within {SPREADS:g} standard deviations. It cannot "
        "be shown that nothing remains: effects smaller than the differences between training runs cannot be "
        "detected, in this model or in a retrained one."
    )
