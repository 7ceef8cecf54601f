"""Limits of a plan, in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from remanence.forecast import Expectation, Forecast
from remanence.requests.calibration import Calibration
from remanence.requests.request import Request
from remanence.requests.verdict import FEWEST
from remanence.scores import ScoreTable
from remanence.types import positions_of

_NEARLY = 0.75
"""Cost of all requests so far, relative to retraining, from which a plan speaks of retraining once."""
_MOST_OF_THEM = 0.5
"""A request that removes a larger share of all examples as hard as its own is unlike what reference models left out."""


def caveats_of(
    calibration: Calibration,
    request: Request,
    expected: Expectation,
    forecast: Forecast,
    now: Mapping[str, float],
) -> tuple[str, ...]:
    sentences = [
        f"Outside the calibrated range: {reason}." for reason in (*forecast.beyond, *expected.beyond)
    ]
    if forecast.high >= (calibration.settings.budget or math.inf):
        sentences.append(
            f"The interval ends at the budget of {calibration.settings.budget} steps: the request may use it up, and "
            "then be retrained."
        )
    if calibration.inherited:
        sentences.append("The calibration was made before earlier requests were removed from this model.")
    if len(request.ids) < FEWEST:
        sentences.append(_small_request(len(request.ids), expected, now["log_odds"]))
    return tuple(sentences)


def hard_together(table: ScoreTable, request: Request, expected: Expectation) -> tuple[str, ...]:
    """What the reference models cannot know about a request that consists of the hardest examples."""
    losses = table.column("privacy_loss").values
    own = losses[positions_of(request.ids, table.ids, what="the trace")]
    level = float(np.quantile(own, 0.25))
    share = float((own >= level).sum() / (losses >= level).sum())
    if len(own) < FEWEST or share <= _MOST_OF_THEM:
        return ()
    return (
        f"It removes {share:.0%} of all examples as hard as these, and most reference models were trained on some of "
        f"them. The expected log-odds are corrected by {-expected.moved:.2f} for this, and the tolerance is wider by "
        "as much; `oracle` compares with a model that was trained without all of them.",
    )


def _small_request(size: int, expected: Expectation, log_odds: float) -> str:
    """What can and cannot be shown for a set this small."""
    distance = (log_odds - expected.log_odds) / expected.log_odds_spread
    return (
        f"{size} example{'' if size == 1 else 's'} cannot be measured in points of accuracy: one is "
        f"{100 / size:.0f} points. Models never trained "
        f"on them differ from each other by ±{expected.log_odds_spread:.2f} (one standard deviation); this model is "
        f"{abs(distance):.1f} standard deviations {'above' if distance > 0 else 'below'} their mean of "
        f"{expected.log_odds:.2f}. It can be shown that the model is within one standard deviation. It cannot "
        "be shown that nothing remains: effects smaller than the differences between training runs cannot be "
        "detected, in this model or in a retrained one."
    )


def stream_caveats(spent: float, share: float) -> list[str]:
    """Says when the requests so far cost nearly as much as retraining once."""
    if not spent or spent + share < _NEARLY:
        return []
    return [
        f"Unlearning the requests since this model was trained has cost {spent:.0%} of retraining; with this request "
        f"it is expected to be {spent + share:.0%}. Retraining once without all of them "
        f"{'is cheaper' if spent + share > 1 else 'will soon be cheaper'} (`method` retrain), and it settles open "
        "requests."
    ]
