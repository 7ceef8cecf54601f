"""The laws that `remanence plan` uses before a calibration: fitted on calibrated runs, in units of their training.

    python benchmarks/trace_laws.py RUN...

Calibrate the runs first: some with `--method finetune`, some with `--method auto`. Writes
benchmarks/results/trace_laws.json: for each method the calibration sets, and a law fitted to them. Steps are relative
to those of training, and a function of the privacy loss of a set relative to the median of all examples. The laws of
`remanence.requests.trace_estimate` are copied from there by hand.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from remanence.forecast import fit_law
from remanence.requests import read_calibration
from remanence.requests.trace_estimate import LAWS, SUMMARY
from remanence.scores import score_table
from remanence.storage import atomic
from remanence.training import Run, open_run


def points_of(run: Run) -> dict[str, list[dict[str, Any]]]:
    """By method, the calibration sets of a run: relative privacy loss, relative steps, and whether it was forgotten."""
    typical = float(np.median(score_table(run.trace()).column("privacy_loss").values))
    steps = run.settings.recipe.total_steps(len(run.data()[0]))
    points = defaultdict(list)
    for trial in read_calibration(run).trials:
        points[trial.method].append(
            {
                "seed": run.settings.seed,
                "set": trial.run.name,
                "loss": trial.run.difficulty.losses[SUMMARY] / typical,
                "steps": trial.run.steps / steps,
                "reached": trial.run.reached,
            }
        )
    return points


def fitted(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The law of these sets, and how far it is from them."""
    losses, shares, reached = (
        np.array([point[name] for point in points]) for name in ("loss", "steps", "reached")
    )
    law = fit_law(losses, 1000 * shares, reached)  # the fit counts in whole steps
    return {
        "law": {"A": law.A / 1000, "B": law.B, "C": law.C},
        "sets": len(points),
        "forgotten": int(reached.sum()),
        "median_error": float(np.median(np.abs(law(losses) / 1000 - shares))),
        "largest_forgotten_loss": float(losses[reached].max()),
        "points": points,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/trace_laws.json"))
    given = parser.parse_args()
    points = defaultdict(list)
    for path in given.runs:
        for method, own in points_of(open_run(path)).items():
            points[method] += own
    laws = {method: fitted(points[method]) for method in LAWS}
    largest = min(law["largest_forgotten_loss"] for law in laws.values())
    atomic.write_text(given.out, json.dumps({"laws": laws, "largest": largest}, indent=1) + "\n")
    for method, law in laws.items():
        print(method, {name: value for name, value in law.items() if name != "points"})
    print(f"largest {largest:.3g}")


if __name__ == "__main__":
    main()
