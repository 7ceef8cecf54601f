"""The plan of a request: difficulty, forecast, cost and a recommendation, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import rankdata

from remanence.audit import Context
from remanence.experiments import measure
from remanence.forecast import Expectation, Forecast
from remanence.requests.calibration import ROUTED, Calibration, find_calibration
from remanence.requests.criterion import MONITORED, Criterion, stopping_split
from remanence.requests.estimate import calibrated_estimate
from remanence.requests.method_choice import MethodForecast
from remanence.requests.plan_caveats import stream_caveats
from remanence.requests.request import Request, model_hash
from remanence.requests.request_ledger import bound_document, group_bound, read_ledger, removed_norms
from remanence.requests.trace_estimate import trace_estimate
from remanence.requests.verdict import Excess
from remanence.requests.verdict_signals import excess_context, stopping_excess
from remanence.scores import ScoreTable, score_table
from remanence.training import Run
from remanence.types import Bound, Trace, positions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Action = Literal["unlearn", "retrain", "nothing"]
PERCENTILES = (10, 25, 50, 75, 90)
_VERBS = {"finetune": "Fine-tune", ROUTED: "Unlearn each example as its difficulty demands (`routed`)"}
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
        expected: the expected metrics of a model never trained on them; None without reference models.
        criterion: when unlearning stops.
        now: metrics of the model before unlearning.
        excess: the statistic that decides when unlearning stops; None without reference models.
        forecast: steps to unlearn.
        seconds_per_step: of unlearning, on the machine that calibrated; without a calibration, on this one.
        retraining: steps and seconds of retraining.
        accuracy: change of test accuracy in the calibration: median, and 5 % and 95 % quantiles; None without one.
        bound: on how much this and all earlier requests change the distribution of the trained model.
        method: the unlearning method.
        methods: all calibrated methods, the smallest expected cost first; empty where there is one only.
        options: its hyperparameters.
        budget: maximum number of steps.
        action: the recommendation.
        caveats: limits of the plan, as sentences.
        reason: why this method was chosen, where there was a choice.
        spent: cost of unlearning all requests since the model was trained, relative to retraining.
    """

    request: Request
    model: str
    members: tuple[Member, ...]
    expected: Expectation | None
    criterion: Criterion
    now: Mapping[str, float]
    forecast: Forecast
    seconds_per_step: float
    retraining: Mapping[str, float]
    accuracy: tuple[float, float, float] | None
    bound: Bound
    method: str
    options: Mapping[str, Any]
    budget: int
    action: Action
    caveats: tuple[str, ...]
    methods: tuple[MethodForecast, ...] = ()
    reason: str | None = None
    spent: float = 0.0
    excess: Excess | None = None

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
        # the losses of `routed` are in the reason
        options = {} if self.method == ROUTED else self.options
        numbers = {name: value for name, value in options.items() if isinstance(value, int | float)}
        settings = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in numbers.items())
        return (
            f"{_VERBS.get(self.method, self.method)} for about {steps} steps{' with ' if settings else ''}{settings}, "
            f"{self.share_of_retraining:.0%} of the cost of retraining."
        )

    @property
    def public_options(self) -> dict[str, Any]:
        """The hyperparameters without the folder of the reference models' outputs, which only this machine knows."""
        return {name: value for name, value in self.options.items() if name != "targets"}

    def minutes(self, steps: float) -> float:
        """The duration of this many steps, on the machine that calibrated."""
        return steps * self.seconds_per_step / 60

    def document(self, *, ids: bool = True) -> dict[str, Any]:
        """The plan as JSON values, with or without the single examples and the name of the request."""
        return {
            **({"request": self.request.forget_set.name} if ids else {}),
            "size": len(self.request.ids),
            "model": self.model,
            "percentiles": {str(level): value for level, value in self.percentiles.items()},
            **({"members": [asdict(member) for member in self.members]} if ids else {}),
            "criterion": self.criterion.document(),
            "now": dict(self.now),
            "expected_if_never_trained_on": None
            if self.expected is None
            else asdict(self.expected) | {"beyond": list(self.expected.beyond)},
            "forecast": self._forecast_document(),
            "retraining": {"steps": self.retraining["steps"], "minutes": self.retraining["seconds"] / 60},
            "share_of_retraining": self.share_of_retraining,
            "spent_share_of_retraining": self.spent,
            "test_accuracy_change": None
            if self.accuracy is None
            else dict(zip(("median", "low", "high"), self.accuracy, strict=True)),
            "bound": bound_document(self.bound, "group loss of all removed examples and of this request"),
            "method": self.method,
            "methods": [candidate.document() for candidate in self.methods],
            "reason": self.reason,
            "options": self.public_options,
            "budget": self.budget,
            "action": self.action,
            "recommendation": self.recommendation(),
            "caveats": list(self.caveats),
        }

    def _forecast_document(self) -> dict[str, Any]:
        forecast = self.forecast
        return {
            "steps": forecast.steps,
            "low": forecast.low,
            "high": forecast.high,
            "coverage": forecast.coverage,
            "guaranteed": forecast.guaranteed,
            "beyond": list(forecast.beyond),
            "minutes": self.minutes(forecast.steps),
            "minutes_low": self.minutes(forecast.low),
            "minutes_high": self.minutes(forecast.high),
        }

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the forecast beside retraining; on new axes by default."""
        from remanence.display.plots import draw_forecast, on_axes

        return on_axes(lambda axes: draw_forecast(axes, *self._drawn()), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import plan_card

        rows = {
            "request": f"{self.request.forget_set.name} ({len(self.request.ids)} examples)",
            "steps": f"{self.forecast.steps:.0f} ({self.forecast.coverage:.0%}: {self.forecast.low:.0f} to "
            f"{self.forecast.high:.0f}; at least {self.forecast.guaranteed:.0%} are guaranteed)",
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
        run: a run with a trace.
        request: the request.
        calibration: the run's calibration; by default the one in its folder. Without one, the trace alone is used.
        trace: the run's trace; read from its folder by default.
    """
    calibration = find_calibration(run) if calibration is None else calibration
    trace = run.trace() if trace is None else trace
    table = score_table(trace)
    excess, now = _measure_now(run, request, calibration)
    if calibration is None or excess is None:
        estimate = trace_estimate(run, request, table)
    else:
        estimate = calibrated_estimate(run, calibration, request, table, excess, now)
    best, retraining = estimate.candidates[0], estimate.retraining
    share = _share(best.forecast, estimate.seconds_per_step, retraining)
    unlikely = len(estimate.candidates) > 1 and best.cost >= retraining["steps"]
    spent = _spent(read_ledger(run), retraining)
    return Plan(
        request=request,
        model=model_hash(run),
        members=_members(run, table, request),
        expected=estimate.expected,
        criterion=estimate.criterion,
        now=now,
        excess=excess,
        forecast=best.forecast,
        seconds_per_step=estimate.seconds_per_step,
        retraining=retraining,
        accuracy=estimate.accuracy,
        bound=group_bound(removed_norms(run, trace, request.ids), trace),
        method=best.method,
        options=estimate.options,
        budget=estimate.budget,
        action="nothing" if estimate.done else "retrain" if share > _TOO_EXPENSIVE or unlikely else "unlearn",
        caveats=(*estimate.caveats, *stream_caveats(spent, share)),
        methods=estimate.candidates if len(estimate.candidates) > 1 else (),
        reason=estimate.reason,
        spent=spent,
    )


def part_of_plan(
    plan: Plan,
    run: Run,
    request: Request,
    calibration: Calibration | None,
    table: ScoreTable,
    *,
    together: int,
) -> Plan:
    """The plan of one of several requests that are unlearned together, whose forecast and criterion they share.

    Args:
        plan: the plan of all of them.
        run: the run.
        request: one of them.
        calibration: the run's calibration, if it has one.
        table: the scores of the run's examples.
        together: the number of requests.
    """
    others = together - 1
    sentence = (
        f"This request was unlearned together with {others} other{'' if others == 1 else 's'}; forecast, steps, cost "
        "and the criterion of unlearning are those of all of them."
    )
    excess, now = _measure_now(run, request, calibration)
    return replace(
        plan,
        request=request,
        members=_members(run, table, request),
        expected=None if calibration is None else calibration.pool.expect(request.ids),
        excess=excess,
        now=now,
        caveats=(sentence, *plan.caveats),
    )


def _spent(ledger: Sequence[Mapping[str, Any]], retraining: Mapping[str, float]) -> float:
    """The recorded cost of all unlearning since the model was trained, relative to retraining."""
    last = max((i for i, row in enumerate(ledger) if row["method"] == "retrain"), default=-1)
    seconds = [row.get("seconds", 0.0) for row in ledger[last + 1 :] if not row.get("part_of")]
    return math.fsum(seconds) / max(retraining["seconds"], 1e-9)


def _share(forecast: Forecast, seconds_per_step: float, retraining: Mapping[str, float]) -> float:
    return forecast.steps * seconds_per_step / max(retraining["seconds"], 1e-9)


def _measure_now(
    run: Run, request: Request, calibration: Calibration | None
) -> tuple[Excess | None, dict[str, float]]:
    """What decides when unlearning stops, and the metrics of the model before it."""
    seed = 0 if calibration is None else calibration.settings.seed
    split, model = stopping_split(run.split(request.forget_set), seed), run.model()
    excess = None if calibration is None else stopping_excess(model, split, calibration.pool)
    context = Context() if excess is None else excess_context(excess)
    rows = measure(model, split, MONITORED, step=0, seed=seed, context=context)
    return excess, {row.metric: row.value for row in rows}


def _members(run: Run, table: ScoreTable, request: Request) -> tuple[Member, ...]:
    all_losses = table.column("privacy_loss").values
    rows = positions_of(request.ids, table.ids, what="the trace")
    losses, ranks = all_losses[rows], 100 * (rankdata(all_losses)[rows] - 0.5) / len(all_losses)
    examples = run.clean[0].take(request.ids)
    labels = examples.label_texts()
    order = np.argsort(-losses, kind="stable")
    ids = request.ids.tolist()
    return tuple(Member(ids[i], labels[i], float(losses[i]), float(ranks[i])) for i in order)
