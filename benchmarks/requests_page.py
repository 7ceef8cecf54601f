"""The page that `requests.py` writes."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from remanence.forecast.conformal import guaranteed_coverage

_ERROR = 0.5
"""Largest error of the forecast, as a share of that of the constant."""
_BREAK_EVEN = ("break_even", "break_even_with_audits")
_GUARANTEED = guaranteed_coverage(0.9)
_AFTER = {0: 1, 12: 20}
"""Requests after which a number of models should have paid, audits counted."""


COVERAGE = "forecast_coverage.json"
"""What `forecast_coverage.py` writes beside the results."""


def page(results: list[dict[str, Any]], oracles: int, coverage: list[dict[str, Any]]) -> str:
    """The results as a page of the documentation, one section per number of reference models."""
    lines = [
        "# Are forecasts of unlearning true, and does it pay?",
        "",
        "`make bench-requests` wrote this page: deletion requests on a run of digits (small_conv of width 16, 35 "
        "epochs), none of them part of the calibration (`--method auto`). Each was planned, carried out, and compared "
        f"with {oracles} models that were trained from scratch without it.",
        "",
        "| reference models | inside the 90 % interval | median width | median error, forecast / constant | the same "
        "request again differs by (median, mean) | outcomes | within 5 points of the oracles (UA and MIA) | a fresh "
        "oracle | calibration, in retrainings | request, in retrainings | audit, in retrainings | break-even after | "
        "with audits | all requests, of as many retrainings | with audits |",
        "|" + "---|" * 15,
        *(_budget(result["models"], result["summary"]) for result in results),
        "",
        "The interval is for the steps until a request is forgotten or its budget ends, when one retrains: the budget "
        "is its largest possible end. Costs are training steps relative to retraining. *With audits* counts the "
        "fine-tuning of the relearning test (copies of the new model) for every request, and none for retraining. "
        "Evaluations are not counted on either side. The constant is the median of the calibration's times; without "
        "models, that of these requests.",
    ]
    lines += [
        "",
        "The run (seed 41) and its requests were looked at by nobody while rules and defaults were chosen "
        "([decision 17](../decisions/0017-routing-and-costs.md)). Budgets of 0, 12 and 40 models are wanted; those "
        "that are not in the table were not run with this code. A row that was computed on another processor has other "
        "models and oracles, since training rounds differently there.",
    ]
    lines += ["", "## Wanted and found", "", *map(_wanted, results)]
    if coverage:
        lines += _coverage(coverage)
    for result in results:
        lines += [
            "",
            f"## {result['models']} reference models",
            "",
            "| request | ids | percentile | forecast | interval | steps | again | stop | outcome | UA | oracles | "
            "MIA | oracles |",
            "|" + "---|" * 13,
            *map(_request, result["requests"]),
        ]
    return "\n".join(lines) + "\n"


def _coverage(rows: list[dict[str, Any]]) -> list[str]:
    """How often the interval held on fresh runs, by way of forecasting."""
    groups = [
        (models, way, [row for row in rows if row["models"] == models and way in ("all", row["way"])])
        for models in sorted({row["models"] for row in rows})
        for way in ("all", *sorted({row["way"] for row in rows}))
    ]
    names = {"by_way": "one law per way", "one_law": "one law for all"}
    return [
        "",
        "## How often the interval holds on fresh runs",
        "",
        "Runs and requests that nobody saw before (`benchmarks/forecast_coverage.py`, settings committed before they "
        "were run; an Intel processor). The time of a request depends on what `auto` does to its hardest examples (its "
        "*way*) more than on its privacy losses, so it is forecast from calibration sets of the same way. Beside it, "
        "on the same requests and calibrations, one law for all sets, as in the tables above and below. *Error* is the "
        "median distance of forecast and steps; that of the constant is beside it, the median of the calibration.",
        "",
        "| reference models | way | seeds | requests | error of the constant | "
        + " | ".join(f"{name}: inside | error | median width" for name in names.values())
        + " |",
        "|" + "---|" * (5 + 3 * len(names)),
        *(_covered(models, way, group, tuple(names)) for models, way, group in groups if group),
        "",
        *(_covered_sentence(models, group) for models, way, group in groups if way == "all"),
    ]


def _covered_sentence(models: int, rows: list[dict[str, Any]]) -> str:
    """How the error compares with that of the constant."""
    errors = [
        median(abs(steps - row["taken"]) for row, steps in pairs)
        for pairs in (
            [(row, row["forecasts"]["by_way"]["steps"]) for row in rows],
            [(row, row["constant"]) for row in rows],
        )
    ]
    share = errors[0] / errors[1]
    return (
        f"- **{models} models**: the error of the forecast is {share:.2f} of the constant's (wanted {_ERROR} or less: "
        f"{_reached(share <= _ERROR)})."
    )


def _covered(models: int, way: str, rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    constant = median(abs(row["constant"] - row["taken"]) for row in rows)
    cells = [str(models), way, str(len({row["seed"] for row in rows})), str(len(rows)), f"{constant:.0f}"]
    for name in names:
        forecasts = [(row["forecasts"][name], row["taken"]) for row in rows]
        inside = sum(each["low"] <= taken <= each["high"] for each, taken in forecasts)
        error = median(abs(each["steps"] - taken) for each, taken in forecasts)
        cells += [
            f"{inside}/{len(rows)}",
            f"{error:.0f}",
            f"{median(each['high'] - each['low'] for each, _ in forecasts):.0f}",
        ]
    return f"| {' | '.join(cells)} |"


def _wanted(result: dict[str, Any]) -> str:
    """What was wanted of a number of models, and whether it was reached."""
    total, models = result["summary"], result["models"]
    constant = total["median_error_constant"]
    share = total["median_error"] / constant if constant else math.inf
    found, aim = total["break_even_with_audits"], ""
    if models in _AFTER:
        met = found is not None and found <= _AFTER[models]
        aim = f" (wanted {_AFTER[models]} or fewer: {_reached(met)})"
    parts = [
        f"the forecast's error is {share:.2f} of the constant's (wanted 0.5 or less: {_reached(share <= _ERROR)})",
        f"the interval of the median request is {total['median_width']:.0f} steps wide; it reaches up to the budget in "
        f"{total['to_the_budget']} of {total['requests']} requests",
        f"within five points of the oracles' mean in {total['close']} of {total['requests']} requests, a fresh oracle "
        f"in {total['oracle_close']}",
        f"break-even with audits after {_requests(found)}{aim}, without them after {_requests(total['break_even'])}",
        f"if every request that was not forgotten is retrained as well, after {_with_failures(total)}",
    ]
    if total["inside"] < _GUARANTEED * total["requests"]:
        parts.append(
            f"**the interval held {total['inside']} of {total['requests']} requests**, fewer than the "
            f"{_GUARANTEED:.0%} that are guaranteed on average over calibrations"
        )
    if not models:
        parts.append(
            "without models a request ends soon after the forecast steps, when accuracy is back, so that the error of "
            "the forecast says little"
        )
    return f"- **{models} models**: " + "; ".join(parts) + "."


def _requests(number: int | None) -> str:
    return "no number of requests" if number is None else f"{number} request{'s' * (number != 1)}"


def _with_failures(total: dict[str, Any]) -> str:
    """Break-even with audits if requests that were not forgotten are retrained afterwards."""
    failed = total["outcomes"].get("not forgotten", 0) / total["requests"]
    saved = 1 - total["request_of_retraining"] - total["audit_of_retraining"] - failed
    if saved <= 0:
        return _requests(None)
    return _requests(max(1, math.ceil(total["calibration_of_retraining"] / saved)))


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "**not reached**"


def _budget(models: int, total: dict[str, Any]) -> str:
    n, outcomes = total["requests"], ", ".join(f"{count} {word}" for word, count in total["outcomes"].items())
    cells = (
        str(models),
        f"{total['inside']}/{n}",
        f"{total['median_width']:.0f}",
        f"{total['median_error']:.0f} / {total['median_error_constant']:.0f}",
        f"{total['luck'][0]:.0f}, {total['luck'][1]:.0f}",
        outcomes,
        f"{total['close']}/{n}",
        f"{total['oracle_close']}/{n}",
        f"{total['calibration_of_retraining']:.1f}",
        f"{total['request_of_retraining']:.2f}",
        f"{total['audit_of_retraining']:.2f}",
        *(_requests(total[name]) for name in _BREAK_EVEN),
        f"{total['total_of_retrainings']:.2f}",
        f"{total['total_of_retrainings_with_audits']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _request(row: dict[str, Any]) -> str:
    values = row["values"]
    shown = [
        cell
        for metric in ("ua", "mia_confidence")
        for cell in (f"{values[metric][0]:.2f}", ", ".join(f"{value:.2f}" for value in values[metric][1:]))
    ]
    cells = (
        row["request"],
        str(row["size"]),
        f"{row['percentile']:.0f}",
        f"{row['steps']:.0f}",
        f"{row['low']:.0f}–{row['high']:.0f}",
        f"{row['taken']:.0f}" if row["reached"] else f"> {row['stopped_at']}",
        f"{row['again']:.0f}",
        str(row["stopped_at"]),
        row["outcome"],
        *shown,
    )
    return f"| {' | '.join(cells)} |"
