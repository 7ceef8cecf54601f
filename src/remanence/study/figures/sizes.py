"""Forget sets of several sizes: does the separation of easy and hard hold?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from remanence.study.durations import Timed, spread, timed
from remanence.study.figures import times
from remanence.study.results import Agreement, Parts, Result, Verdict

wanted = times.wanted


def make(parts: Parts, settings: Mapping[str, Any]) -> Result:
    """As for times, with a word on the largest size."""
    result = times.make(parts, settings)
    runs = list(timed(parts, settings["audit"]["metrics"][:1], settings["audit"]))
    return replace(result, verdicts=[*result.verdicts, _fades(runs)])


def _fades(runs: list[Timed]) -> Verdict:
    sizes = sorted({run.role["size"] for run in runs})
    gaps = {size: _gaps([run for run in runs if run.role["size"] == size]) for size in sizes}
    middle, largest = gaps[sizes[-2]], gaps[sizes[-1]]
    agreement: Agreement = "undecided"
    if np.mean(largest) < np.mean(middle) - np.std(middle):
        agreement = "agrees"
    elif np.mean(largest) > np.mean(middle) + np.std(middle):
        agreement = "disagrees"
    return Verdict(
        "For very large forget sets the separation of easy and hard diminishes.",
        "; ".join(f"{size}: hardest minus easiest {spread(each)} epochs" for size, each in gaps.items()),
        agreement,
        "agrees when the gap at the largest size is below that of the next by more than its spread over seeds",
    )


def _gaps(runs: list[Timed]) -> list[float]:
    seeds = sorted({run.role["seed"] for run in runs})
    found = []
    for seed in seeds:
        ordered = sorted((run for run in runs if run.role["seed"] == seed), key=lambda run: run.loss)
        found.append(ordered[-1].duration.value - ordered[0].duration.value)
    return found
