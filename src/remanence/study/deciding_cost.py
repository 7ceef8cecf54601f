"""How many seeds would decide a claim that is undecided, and what they would cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scipy.stats import norm

from remanence.study.significance import LEVEL, fewest_samples

POWER = 0.8
"""Probability with which so many seeds would decide, if the effect is as large as it looks."""
_OUT_OF_REACH = 25
"""More than this many times the seeds: the effect is too small to plan with."""


def samples_to_decide(p: float, corrected: float, samples: int, power: float = POWER) -> int | None:
    """The number of samples with which a test decides with this probability; None if that is out of reach.

    Statement:
        n' = n ((z_{1−α/m} + z_power) / z_{1−p})², where m = corrected / p is the factor of the correction.

    Symbols: `p` = p, `samples` = n, `corrected` = p after Holm's correction, α = `LEVEL`.

    Assumptions: the mean is nearly normal, and the effect, its spread and the factor of the correction are as they were
        seen. What was seen is itself uncertain, so this plans an experiment and says nothing about the claim.

    Checked by: tests/unit/study/test_deciding_cost.py
    """
    if not 0 < p < 0.5:
        return None
    needed = norm.isf(LEVEL * min(1.0, p / corrected)) + norm.ppf(power)
    times = float(needed / norm.isf(p)) ** 2
    if times > _OUT_OF_REACH:
        return None
    return max(math.ceil(samples * times), fewest_samples(LEVEL * min(1.0, p / corrected)))


def deciding_cost(study: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """What it would cost to decide a claim, as a sentence; empty if it is decided or was not tested.

    Args:
        study: the document of an exported study, with `core_seconds`.
        verdict: one of its verdicts.
    """
    test = verdict["test"]
    if verdict["agreement"] != "undecided" or test is None:
        return ""
    if test["effect"] == 0 and test["interval"] == [0, 0]:
        return (
            "With every seed the effect is 0 (equal times, say, or none known): more seeds would not decide."
        )
    towards, p, corrected = min(
        ("for", test["p"], test["p_holm"]), ("against", test["p_against"], test["p_against_holm"]), key=_p
    )
    needed = samples_to_decide(p, corrected, test["samples"])
    if needed is None:
        return "The effect is too small beside its spread to say how many seeds would decide."
    seconds = study.get("core_seconds")  # earlier versions did not write it
    hours = (
        ""
        if seconds is None
        else f": about {seconds * needed / test['samples'] / 3600:.1f} hours of one core"
    )
    return (
        f"If the effect is as large as it looks ({towards} the claim), {needed} seeds or pairs instead of "
        f"{test['samples']} would decide with a probability of {POWER:.0%}{hours}."
    )


def _p(direction: tuple[str, float, float]) -> float:
    return direction[1]
