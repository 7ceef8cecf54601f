"""The HTML that a trace, scores, a plan and an audit show in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.display.html import card, facts, human, picture, sentences, table
from remanence.display.plots import Numbers, draw_distances, draw_forecast, draw_norms, draw_scores, drawn

Compared = tuple[str, float, float | None, float | None, float | None, str]
_ENDS = 5
_VERDICTS = {"within": "within", "below": "too low", "above": "too high", "unknown": "no reference value"}


def trace_card(
    ids: NDArray[Any],
    steps: NDArray[np.int64],
    norms: Numbers,
    mechanism: Mapping[str, Any],
    recorded: Sequence[str],
) -> str:
    """Size and mechanism of the trace, and a plot of the norms."""
    noise = f"σ = {human(mechanism['sigma'])}" + (" (assumed)" if mechanism["assumed"] else " (added)")
    rows = {
        "examples": f"{len(ids):,}",
        "checkpoints": f"{len(steps)}, step {steps[0]} to {steps[-1]}",
        "recorded": ", ".join(recorded),
        "training": f"{mechanism['steps']:,} steps, batches of {mechanism['batch_size']:g}, {mechanism['sampling']}",
        "noise": noise,
    }
    if not len(ids):
        return card("Trace", facts(rows))
    uri = drawn(lambda axes: draw_norms(axes, steps, norms, {}))
    return card("Trace", facts(rows), picture(uri, "Gradient norms of all examples over training"))


def scores_card(
    name: str,
    ids: NDArray[Any],
    values: NDArray[np.float64],
    params: Mapping[str, Any],
    status: str,
    reasons: Sequence[str],
) -> str:
    """Status of the scores, the examples with the largest and smallest ones, and a histogram."""
    rows = {"examples": f"{len(ids):,}", "status": str(status)}
    rows |= {key: _short(value) for key, value in params.items()}
    if not len(ids):
        return card(name, facts(rows), sentences(reasons))
    order = np.argsort(-values, kind="stable")
    largest, smallest = order[:_ENDS], order[::-1][:_ENDS]
    ends = [
        (str(ids[high]), human(values[high]), str(ids[low]), human(values[low]))
        for high, low in zip(largest, smallest, strict=True)
    ]
    uri = drawn(lambda axes: draw_scores(axes, name, values))
    return card(
        name,
        facts(rows),
        sentences(reasons),
        table(("largest: id", "score", "smallest: id", "score"), ends),
        picture(uri, f"Histogram of {name}"),
    )


def audit_card(
    run: str,
    forgotten: str,
    oracles: int,
    rows: Sequence[Compared],
    distances: Mapping[str, float],
    not_measured: Sequence[str] = (),
) -> str:
    """Every metric with the oracles' values and the verdict, and what was not measured."""
    lines = []
    for name, value, mean, spread, distance, verdict in rows:
        oracle = "–" if mean is None or spread is None else f"{mean:.3f} ± {spread:.3f}"
        gap = "–" if distance is None else f"{distance:+.3f}"
        lines.append((name, f"{value:.3f}", oracle, gap, _VERDICTS[verdict]))
    parts = [
        facts({"run": run, "forget set": forgotten, "oracles": str(oracles)}),
        table(("metric", "value", "oracles", "distance", "verdict"), lines),
    ]
    if distances:
        uri = drawn(lambda axes: draw_distances(axes, list(distances), list(distances.values())))
        parts.append(picture(uri, "Distance of each metric from the oracles, in tolerances"))
    parts.append(sentences([f"Not measured: {reason}" for reason in not_measured]))
    return card("Audit", *parts)


def plan_card(
    recommendation: str,
    rows: Mapping[str, str],
    caveats: Sequence[str],
    forecast: tuple[float, float, float, float, float],
) -> str:
    """Recommendation, estimates and caveats; `forecast` holds the arguments of `draw_forecast`."""
    uri = drawn(lambda axes: draw_forecast(axes, *forecast))
    return card(
        "Plan",
        sentences((recommendation,)),
        facts(rows),
        sentences(caveats),
        picture(uri, "Expected steps to unlearn with their interval, compared with retraining"),
    )


def _short(value: Any) -> str:
    text = human(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"
