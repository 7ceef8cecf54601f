"""The page that `requests.py` writes."""

from __future__ import annotations

import math
from typing import Any


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    total, settings, requests = results["summary"], results["settings"], results["requests"]
    n, options = total["requests"], ", ".join(f"{k} {v:g}" for k, v in settings["options"].items())
    nothing = sum(row["action"] == "nothing" for row in requests)
    small = [row for row in results["calibration"] if row["metric"] == "log_odds"]
    large = [row for row in results["calibration"] if row["metric"] == "mia_confidence"]
    lines = [
        "# Are forecasts of unlearning true?",
        "",
        f"`make bench-requests` wrote this page: {n} deletion requests on a run of digits (small_conv of width 16, "
        "35 epochs), none of them part of the calibration. Each was planned, carried out, and "
        f"judged by {results['oracles']} models that were trained from scratch without it. Unlearning: "
        f"{settings['method']}, {options}, at most {settings['budget']} steps; retraining takes "
        f"{results['retraining']['steps']:.0f}.",
        "",
        "## Results",
        "",
        "| | wanted | found | |",
        "|---|---|---|---|",
        verdict(
            f"steps inside the 90 % interval, of {n}", "at least 16", total["inside"], total["inside"] >= 16
        ),
        verdict(
            "median error of the forecast over that of the constant",
            "at most 0.5",
            f"{total['median_error']:.0f} / {total['median_error_constant']:.0f} = "
            f"{total['median_error'] / max(total['median_error_constant'], 1e-9):.2f}",
            2 * total["median_error"] <= total["median_error_constant"],
        ),
        verdict(
            "stop of `forget` over the stop by real oracles (median)",
            "at most 1.5",
            f"{total['median_ratio']:.2f}",
            total["median_ratio"] <= 1.5,
        ),
        verdict(
            f"within 5 points of one real oracle by MIA, of {n}",
            "at least 16",
            total["within_first"],
            total["within_first"] >= 16,
        ),
        verdict(f"the same beside the mean of {results['oracles']} oracles", "", total["within_mean"], None),
        verdict("two real oracles within 5 points of each other", "", f"{total['oracles_agree']:.0%}", None),
        "",
        "The last line is the ceiling for the fourth: a request of 20 to 100 examples cannot be closer to one "
        "retrained model than retrained models are to each other.",
        "",
        f"Of the {n} requests, {nothing} looked forgotten before anything was done (*nothing measurable to remove*), "
        "which a plan knows; for these the forecast is 0 steps. Over the others "
        f"alone the median error is {total['median_error_open']:.0f} steps, the constant's "
        f"{total['median_error_constant_open']:.0f}.",
        "",
        "## Limitations",
        "",
        "The same request unlearned again with another order of batches takes another number of "
        f"steps: two such runs differ by {total['median_luck']:.0f} in the median and {total['mean_luck']:.0f} on "
        "average. Five points of 40 examples are two examples: when a request first "
        "counts as forgotten hangs on a few that sit at the attacker's threshold. Against the mean of three runs the "
        f"forecast's median error is {total['median_error_of_mean']:.0f}, the constant's "
        f"{total['median_error_constant_of_mean']:.0f}.",
        "",
        f"Half of the requests took between {total['quartiles'][0]:.0f} and {total['quartiles'][1]:.0f} steps; the "
        f"constant says {total['constant']:.0f}. They are drawn in the way of the calibration's sets (bands of all "
        "difficulties, mixtures of easy and hard, chance, single classes, the hardest), by another seed: an interval "
        "promises nothing for requests of another kind. "
        "With requests that are all alike there is little for a privacy loss to tell apart "
        "([seen on an earlier run](../decisions/0009-request-settings.md)).",
        "",
        "`forget` mostly comes from below and stops at the first edge of the three points that it aims for: its "
        f"MIA is below the oracles' mean in {total['below']} of {n} requests. Where one ends further than five "
        "points from a single oracle, that and the oracles' own differences are why. The largest loss of test "
        "accuracy was "
        f"{-100 * min(row['accuracy'] for row in requests):.1f} points.",
        "",
        "## The requests",
        "",
        "Percentile: of the request's median example by privacy loss. Again: steps with two other orders of "
        "batches. Stop: "
        "of `forget`, and of one that knew the real oracles.",
        "",
        "| request | ids | percentile | forecast | interval | steps | inside | again | stop | by oracles | "
        "MIA | expected "
        "| oracles | accuracy |",
        "|" + "---|" * 14,
        *(line(row) for row in requests),
        "",
        "## Predictors by leave-one-out on the calibration",
        "",
        f"Absolute errors in steps over {tally(large)} of 20 to 100 examples and {tally(small)} of fewer than 20. "
        f"Used for requests: {results['law']}. Laws know when there is nothing to do; the mean of the proxies and the "
        "constant do not.",
        "",
        "| predictor | median, large | mean, large | median, small | mean, small |",
        "|---|---|---|---|---|",
        *(
            f"| {a['predictor']} | {a['median_error']:.0f} | {a['mean_error']:.0f} | {b['median_error']:.0f} | "
            f"{b['mean_error']:.0f} |"
            for a, b in zip(
                results["leave_one_out"]["mia_confidence"], results["leave_one_out"]["log_odds"], strict=True
            )
        ),
        "",
        "How the settings came about, and what had been seen by then, is in "
        "[a decision of its own](../decisions/0009-request-settings.md).",
        "",
    ]
    return "\n".join(lines)


def tally(rows: list[dict[str, Any]]) -> str:
    reached, done = (sum(row[name] for row in rows) for name in ("reached", "done"))
    return f"{len(rows)} sets ({reached} unlearned in time, {done} of them with nothing to do)"


def verdict(what: str, wanted: str, value: object, holds: bool | None) -> str:
    return f"| {what} | {wanted} | {value} | {'' if holds is None else 'yes' if holds else '**no**'} |"


def inside(row: dict[str, Any]) -> bool:
    high = math.inf if row["high"] is None else row["high"]
    return bool(row["reached"] and row["low"] <= row["steps"] <= high)


def line(row: dict[str, Any]) -> str:
    high = "∞" if row["high"] is None else f"{row['high']:.0f}"
    steps = f"{row['steps']:.0f}" if row["reached"] else f"> {row['steps']:.0f}"
    by_oracles = f"{row['oracle_stops']}" if row["oracle_reached"] else f"> {row['oracle_stops']}"
    again = ", ".join(f"{value:.0f}" for value in row["again"])
    oracles = ", ".join(f"{value:.2f}" for value in row["oracle_mia"])
    return (
        f"| {row['request']} | {row['size']} | {row['median_percentile']:.0f} | {row['forecast']:.0f} | "
        f"{row['low']:.0f}–{high} | {steps} | {'yes' if inside(row) else 'no'} | {again} | {row['stopped_at']} | "
        f"{by_oracles} | {row['mia_confidence']:.2f} | {row['expected_mia']:.2f} | {oracles} | "
        f"{100 * row['accuracy']:+.1f} |"
    )
