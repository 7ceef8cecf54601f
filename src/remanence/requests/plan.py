"""What a request would take, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from remanence.forecast import Expectation, Forecast, difficulty_of
from remanence.requests.calibration import Calibration, model_hash, read_calibration
from remanence.requests.criterion import SMALL, SPREADS, Criterion
from remanence.requests.ledger import bound_document, group_bound, removed_norms
from remanence.requests.request import Request, trace_of
from remanence.requests.stages import SAMPLE
from remanence.scores import ScoreTable, score_table
from remanence.training import Run
from remanence.trials import measure, sampled
from remanence.types import Bound, positions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Action = Literal["unlearn", "retrain", "nothing"]
PERCENTILES = (10, 25, 50, 75, 90)
_WATCHED = ("mia", "log_odds", "ua", "test")
_VERBS = {"finetune": "Fine-tune"}
_DEAR = 0.8
"""Unlearning that is expected to cost this share of retraining is not worth its doubts."""


@dataclass(frozen=True)
class Member:
    """One of the examples asked for: how hard, and harder than which share of all."""

    id: int | str
    label: str
    loss: float
    percentile: float


@dataclass(frozen=True, eq=False)
class Plan:
    """What a request would take.

    Args:
        request: what is asked for.
        model: hash of the model's weights.
        percentiles: of the request's examples, among all that the run holds, by privacy loss: at 10, 25, 50, 75, 90 %.
        members: the examples, hardest first.
        expected: what a model never trained on them would show.
        criterion: when they count as forgotten.
        now: what the model shows today, by metric.
        forecast: steps to unlearn.
        seconds_a_step: of unlearning, where it was calibrated.
        retraining: steps and seconds of the alternative.
        accuracy: change of test accuracy seen in calibration: median, and the range of nine in ten.
        bound: on how far the request (and all before it) moves the law of the trained model.
        method: how it would be done.
        options: with which hyperparameters.
        budget: steps after which it is given up.
        action: what is recommended.
        caveats: what must be said aloud.
    """

    request: Request
    model: str
    percentiles: Mapping[int, float]
    members: tuple[Member, ...]
    expected: Expectation
    criterion: Criterion
    now: Mapping[str, float]
    forecast: Forecast
    seconds_a_step: float
    retraining: Mapping[str, float]
    accuracy: tuple[float, float, float]
    bound: Bound
    method: str
    options: Mapping[str, Any]
    budget: int
    action: Action
    caveats: tuple[str, ...]

    @property
    def share_of_retraining(self) -> float:
        """What unlearning is expected to cost, training anew being 1."""
        return self.forecast.steps * self.seconds_a_step / max(self.retraining["seconds"], 1e-9)

    def recommendation(self) -> str:
        """What to do, in one sentence."""
        if self.action == "nothing":
            return (
                "Nothing measurable to remove: the model already treats these examples as one that never saw them "
                "would. `forget` still takes them out of all further training, confirms it, and writes the evidence."
            )
        steps = round(self.forecast.steps)
        if self.action == "retrain":
            return (
                f"Retrain: unlearning is expected to take {steps} steps, {self.share_of_retraining:.0%} of what "
                "training anew costs, and retraining leaves no doubt."
            )
        return (
            f"{_VERBS.get(self.method, self.method)} for about {steps} steps with {self._how()}, "
            f"{self.share_of_retraining:.0%} of the cost of retraining."
        )

    def _how(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.options.items())

    def document(self, *, ids: bool = True) -> dict[str, Any]:
        """The plan as plain values; without the members where ids are not to be told."""
        high = self.forecast.high
        return {
            "request": self.request.forget_set.name,
            "size": len(self.request.ids),
            "model": self.model,
            "percentiles": {str(at): value for at, value in self.percentiles.items()},
            **({"members": [asdict(each) for each in self.members]} if ids else {}),
            "criterion": self.criterion.document() | {"sentence": self.criterion.sentence()},
            "now": dict(self.now),
            "expected_if_never_trained_on": asdict(self.expected) | {"beyond": list(self.expected.beyond)},
            "forecast": {
                "steps": self.forecast.steps,
                "low": self.forecast.low,
                "high": high if math.isfinite(high) else None,
                "coverage": self.forecast.coverage,
                "beyond": list(self.forecast.beyond),
                "minutes": self.minutes(self.forecast.steps),
                "minutes_low": self.minutes(self.forecast.low),
                "minutes_high": self.minutes(high) if math.isfinite(high) else None,
            },
            "retraining": {"steps": self.retraining["steps"], "minutes": self.retraining["seconds"] / 60},
            "share_of_retraining": self.share_of_retraining,
            "test_accuracy_change": dict(zip(("median", "low", "high"), self.accuracy, strict=True)),
            "bound": bound_document(
                self.bound, "group loss of everything removed so far and of this request"
            ),
            "method": self.method,
            "options": dict(self.options),
            "budget": self.budget,
            "action": self.action,
            "recommendation": self.recommendation(),
            "caveats": list(self.caveats),
        }

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the forecast beside training anew; on new axes by default."""
        from remanence.display.plots import draw_forecast, on_axes

        return on_axes(lambda axes: draw_forecast(axes, *self._drawn()), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import plan_card

        high = f"{self.forecast.high:.0f}" if math.isfinite(self.forecast.high) else "unknown"
        rows = {
            "request": f"{self.request.forget_set.name} ({len(self.request.ids)} examples)",
            "steps": f"{self.forecast.steps:.0f} ({self.forecast.coverage:.0%}: {self.forecast.low:.0f} to {high})",
            "minutes": f"{self.minutes(self.forecast.steps):.1f}; anew {self.retraining['seconds'] / 60:.1f}",
            "harder than": f"{self.percentiles[50]:.0f} % of all examples, half of them",
            "forgotten when": self.criterion.sentence(),
            "bound": f"{self.bound.value:.3g} ({self.bound.status})",
        }
        return plan_card(self.recommendation(), rows, self.caveats, self._drawn())

    def _drawn(self) -> tuple[float, float, float, float, float]:
        found = self.forecast
        return found.steps, found.low, found.high, float(self.retraining["steps"]), found.coverage

    def minutes(self, steps: float) -> float:
        """How long so many steps take, where it was calibrated."""
        return steps * self.seconds_a_step / 60


def make_plan(run: Run, request: Request, calibration: Calibration | None = None) -> Plan:
    """Plan a request; changes nothing."""
    calibration = calibration or read_calibration(run)
    settings, trace = calibration.settings, trace_of(run)
    table = score_table(trace)
    expected, criterion = calibration.expect(request.ids), calibration.criterion(request.ids)
    now = _now(run, request, settings.seed)
    done = criterion.close(now[criterion.metric])
    difficulty = difficulty_of(request.ids, table, done=done)
    forecast = calibration.forecaster(criterion.metric).forecast(difficulty)
    cost = forecast.steps * calibration.seconds_a_step() / max(calibration.retraining["seconds"], 1e-9)
    return Plan(
        request=request,
        model=model_hash(run),
        percentiles=_percentiles(table, request),
        members=_members(run, table, request),
        expected=expected,
        criterion=criterion,
        now=now,
        forecast=forecast,
        seconds_a_step=calibration.seconds_a_step(),
        retraining=calibration.retraining,
        accuracy=_accuracy(calibration),
        bound=group_bound(removed_norms(run, trace, request.ids), trace.steps, trace.mechanism),
        method=settings.method,
        options=settings.options,
        budget=int(settings.budget or 0),
        action="nothing"
        if criterion.close(now[criterion.metric])
        else "retrain"
        if cost > _DEAR
        else "unlearn",
        caveats=_caveats(calibration, request, expected, forecast, now),
    )


def _now(run: Run, request: Request, seed: int) -> dict[str, float]:
    watched = sampled(run.split(request.forget_set), SAMPLE, seed)
    return {row.metric: row.value for row in measure(run.model(), watched, _WATCHED, step=0, seed=seed)}


def _percentiles(table: ScoreTable, request: Request) -> dict[int, float]:
    """Where the request's examples stand among all, in percent, at each share of the request."""
    ranks = _ranks(table)[positions_of(request.ids, table.ids, what="the trace")]
    return {at: float(np.percentile(ranks, at)) for at in PERCENTILES}


def _ranks(table: ScoreTable) -> NDArray[np.float64]:
    """Each example's share of examples that are easier than it, in percent."""
    losses = table.column("privacy_loss").values
    found: NDArray[np.float64] = 100 * (rankdata(losses) - 0.5) / len(losses)
    return found


def _members(run: Run, table: ScoreTable, request: Request) -> tuple[Member, ...]:
    rows = positions_of(request.ids, table.ids, what="the trace")
    losses, ranks = table.column("privacy_loss").values[rows], _ranks(table)[rows]
    examples = run.clean[0].take(request.ids)
    labels = [examples.class_names[int(label)] for label in examples.labels]
    order = np.argsort(-losses, kind="stable")
    ids = request.ids.tolist()
    return tuple(Member(ids[i], labels[i], float(losses[i]), float(ranks[i])) for i in order)


def _accuracy(calibration: Calibration) -> tuple[float, float, float]:
    changes = [row["accuracy_change"] for row in calibration.rows]
    middle, low, high = np.quantile(changes, (0.5, 0.05, 0.95))
    return float(middle), float(low), float(high)


def _caveats(
    calibration: Calibration,
    request: Request,
    expected: Expectation,
    forecast: Forecast,
    now: Mapping[str, float],
) -> tuple[str, ...]:
    said = [f"Beyond what was calibrated: {why}." for why in (*forecast.beyond, *expected.beyond)]
    if not math.isfinite(forecast.high):
        said.append(
            "No upper end of the interval: too many calibration sets were not unlearned within the budget "
            f"of {calibration.settings.budget} steps."
        )
    if calibration.inherited:
        said.append("The calibration was made on this model before earlier requests left it.")
    return (*said, *_what_small_shows(request, expected, now))


def _what_small_shows(request: Request, expected: Expectation, now: Mapping[str, float]) -> tuple[str, ...]:
    """What a set this small can and cannot show."""
    size = len(request.ids)
    if size >= SMALL:
        return ()
    off = (now["log_odds"] - expected.log_odds) / expected.log_odds_spread
    return (
        f"{size} example{'' if size == 1 else 's'} cannot be measured in points of accuracy: one is "
        f"{100 / size:.0f} points. The criterion is the mean log-odds of the true class instead. Models never trained "
        f"on them differ from each other by ±{expected.log_odds_spread:.2f} (one standard deviation); this model is "
        f"{abs(off):.1f} of those {'above' if off > 0 else 'below'} their mean of {expected.log_odds:.2f}. So it can "
        f"be shown that the model is not further off than {SPREADS:g} of them. It cannot be shown that nothing "
        "remains: what is smaller than the luck of one training run stays hidden, in this model as in a retrained one.",
    )
