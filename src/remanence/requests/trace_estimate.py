"""What a request is expected to take, from the trace alone: for a run without reference models."""

from __future__ import annotations

import copy

import numpy as np

from remanence.experiments.shadows import seconds_per_step
from remanence.forecast import Difficulty, Forecast, UnlearningLaw, difficulty_of
from remanence.requests.calibration import AUTO, CalibrationSettings, without_targets
from remanence.requests.criterion import after_steps
from remanence.requests.estimate import Estimate
from remanence.requests.method_choice import MethodForecast, why
from remanence.requests.request import Request
from remanence.scores import ScoreTable
from remanence.training import Run
from remanence.unlearning import has_units

SUMMARY = "upper tenth"
"""The summary of the losses of a set that the laws below are about."""
LAWS = {
    "finetune": UnlearningLaw(0.0777958, 4.47951, 1.000001),
    "reset": UnlearningLaw(10.6984, 0.000888749, 1.004354),
    "shrink_perturb": UnlearningLaw(0.19789, 0.0139411, 1.4948168),
}
"""The law of the theory by method: steps relative to those of training, as a function of the privacy loss of a set
relative to the median of all examples. Fitted by `benchmarks/trace_laws.py` on one run of digits (seed 0)."""
LARGEST = 11.9
"""Larger relative losses count as this one: in that run, not all methods forgot harder sets."""
WAIT = 1.2
"""Steps until unlearning stops, relative to those of the law: it waits until accuracy is back. The median of twenty
requests on a run of digits (seed 40)."""
_COVERAGE = 0.9
_NOT_JUDGED = (
    "There are no reference models, so it is not known what a model never trained on these examples would say about "
    "them. They will be unlearned for the forecast number of steps, and relearning and harm are measured, but the "
    "outcome will be *carried out, not judged*, never *forgotten*. `remanence calibrate` trains reference models."
)
_FORECAST = (
    "The forecast is a law that was measured on another run (digits), scaled by the steps of training and by the "
    "losses of this run. Nothing is guaranteed for its interval, which reaches up to retraining."
)


def trace_estimate(run: Run, request: Request, table: ScoreTable) -> Estimate:
    """The estimate without reference models: the theory's law with wide bands, and a method by difficulty.

    Args:
        run: a run with a trace.
        request: the request.
        table: the scores of the run's examples.
    """
    retained = run.split(request.forget_set).retain
    recipe = run.settings.recipe
    steps = recipe.total_steps(len(retained))
    candidates = _forecasts(run, difficulty_of(request.ids, table), table, steps)
    best = candidates[0]
    seconds = seconds_per_step(copy.deepcopy(run.model()), retained, recipe)
    return Estimate(
        expected=None,
        criterion=after_steps(round(best.forecast.steps / WAIT)),
        candidates=candidates,
        options=without_targets(CalibrationSettings(method=AUTO).options_of(best.method, run)),
        seconds_per_step=seconds,
        retraining={"steps": float(steps), "seconds": steps * seconds},
        accuracy=None,
        budget=steps,
        done=False,
        reason=why(candidates),
        caveats=(_NOT_JUDGED, _FORECAST),
    )


def _forecasts(run: Run, difficulty: Difficulty, table: ScoreTable, steps: int) -> tuple[MethodForecast, ...]:
    """Fine-tuning, and a method that resets weights; the fewest steps first."""
    typical = float(np.median(table.column("privacy_loss").values))
    relative = min(LARGEST, difficulty.losses[SUMMARY] / max(typical, np.finfo(float).tiny))
    forecasts = []
    for method in ("finetune", "reset" if has_units(run.model()) else "shrink_perturb"):
        expected = WAIT * max(1.0, min(float(LAWS[method](relative)), 1.0 / WAIT) * steps)
        forecast = Forecast(expected, 0.0, float(steps), _COVERAGE, guaranteed=0.0)
        forecasts.append(MethodForecast(method, forecast, None, expected))
    return tuple(sorted(forecasts, key=lambda candidate: candidate.cost))
