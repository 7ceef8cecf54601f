"""The laws that `remanence plan` uses before a calibration: fitted on calibrated runs, in units of their training.

    python benchmarks/trace_laws.py RUN...

Calibrate the runs first, with `--method finetune` and `--method auto`. Prints one law per method: steps relative to
those of training, as a function of the privacy loss of a set relative to the median of all examples.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from remanence.forecast import fit_law
from remanence.requests import read_calibration
from remanence.requests.trace_estimate import LAWS, SUMMARY
from remanence.scores import score_table
from remanence.training import open_run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    points = defaultdict(list)
    for path in parser.parse_args().runs:
        run = open_run(path)
        typical = float(np.median(score_table(run.trace()).column("privacy_loss").values))
        steps = run.settings.recipe.total_steps(len(run.data()[0]))
        for trial in read_calibration(run).trials:
            point = trial.run.difficulty.losses[SUMMARY] / typical, trial.run.steps / steps, trial.run.reached
            points[trial.method].append(point)
    for method in LAWS:
        losses, shares, reached = zip(*points[method], strict=True)
        scaled = 1000 * np.array(shares)  # the fit counts in whole steps
        law = fit_law(losses, scaled, reached)
        error = np.median(np.abs(law(np.array(losses)) - scaled)) / 1000
        print(
            f'"{method}": UnlearningLaw({law.A / 1000:.6g}, {law.B:.6g}, {law.C:.8g}),  # {len(shares)} sets, '
            f"{sum(reached)} forgotten, median error {error:.2f} of training"
        )
    largest = min(max(loss for loss, _, reached in points[method] if reached) for method in LAWS)
    print(f"LARGEST = {largest:.3g}")


if __name__ == "__main__":
    main()
