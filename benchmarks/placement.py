"""How few checkpoints are enough? Rank agreement with an every-epoch reference, against the number of passes.

Trains one reference run a data set with a row recorded after every epoch, then thins its trace out by each
placement and compares the privacy losses' ranks. Thinning is arithmetic: no model is trained twice.

    python benchmarks/placement.py --work /tmp/placement --out docs/results
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from remanence.scores import privacy_loss
from remanence.storage import open_folder, read_trace
from remanence.training import Recipe, placed_steps
from remanence.training.placement import is_due, probe_positions
from remanence.training.run_settings import RunSettings
from remanence.training.train_run import train_run
from remanence.types import Trace

SHARED = Path(__file__).parents[2] / "shared" / "data"
COUNTS = (3, 5, 7, 9, 12, 18, 35)
RULES = ("right", "trapezoid")


def thinned(trace: Trace, rows: NDArray[np.int64]) -> Trace:
    keep = np.unique(rows)
    return Trace(trace.ids, trace.steps[keep], trace.norms[keep], trace.mechanism)


def nearest_rows(trace: Trace, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.abs(trace.steps[None, :] - steps[:, None]).argmin(axis=1)


def adaptive_rows(trace: Trace, tolerance: float) -> NDArray[np.int64]:
    """Rows of a densely recorded trace that the adaptive placement would have recorded; always the first and last."""
    assert trace.error is not None  # recorded by `train_run`
    errors = trace.error[:, probe_positions(len(trace.ids))]
    rows, steps = [0], trace.steps.tolist()
    for row in range(1, len(steps)):
        if is_due(steps[row], steps[rows[-1]], errors[row], errors[rows[-1]], tolerance):
            rows.append(row)
    return np.unique([*rows, len(steps) - 1])


def agreement(trace: Trace, rows: NDArray[np.int64], rule: str) -> float:
    reference = privacy_loss(trace, rule=rule).values
    return float(spearmanr(privacy_loss(thinned(trace, rows), rule=rule).values, reference).statistic)


def measure(trace: Trace) -> list[dict[str, Any]]:
    found = []
    for rule in RULES:
        for placement in ("even", "log"):
            for count in COUNTS:
                if count >= len(trace.steps):
                    continue
                rows = nearest_rows(trace, placed_steps(int(trace.steps[-1]), count, placement))
                passes = len(np.unique(rows))
                found.append({"placement": placement, "rule": rule, "checkpoints": count, "passes": passes})
                found[-1]["spearman"] = agreement(trace, rows, rule)
        for tolerance in (0.7, 0.8, 0.9, 0.95):
            rows = adaptive_rows(trace, tolerance)
            found.append({"placement": f"adaptive {tolerance}", "rule": rule, "passes": len(rows)})
            found[-1]["spearman"] = agreement(trace, rows, rule)
    return found


def small_pack(name: str, work: Path, n: int) -> Path:
    path = work / f"{name}-{n}.npz"
    if not path.exists():
        pack = dict(np.load(SHARED / f"{name}_12k.npz"))
        cut = {key: value[:n] if key.endswith("_train") else value for key, value in pack.items()}
        np.savez(path, **cut)
    return path


def references(work: Path, quick: bool) -> dict[str, RunSettings]:
    epochs, n = (3, 300) if quick else (40, 3000)
    convolutional = Recipe(epochs=epochs, learning_rate=0.02, batch_size=64, schedule="cosine", augment=False)
    found = {
        "digits": RunSettings(
            "digits",
            "small_conv",
            Recipe(epochs=epochs, learning_rate=0.05, batch_size=32, weight_decay=1e-3),
            record=epochs,
            placement="even",
        )
    }
    for name in ("fashion_mnist", "cifar10"):
        if (SHARED / f"{name}_12k.npz").exists():
            pack = str(small_pack(name, work, n))
            options = {"width": 8}
            found[name] = RunSettings(
                pack, "resnet18", convolutional, model_options=options, record=epochs, placement="even"
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    table = []
    for name, settings in references(arguments.work, arguments.quick).items():
        started = time.perf_counter()
        run = train_run(settings, arguments.work / name, resume=True)
        trace = read_trace(open_folder(run.path))
        rows = measure(trace)
        table += [{"data": name, **row} for row in rows]
        print(
            f"{name}: {len(trace.ids)} examples, {len(trace.steps)} rows, {time.perf_counter() - started:.0f} s"
        )
        for row in rows:
            print(
                f"  {row['placement']:>14} {row['rule']:>10} {row['passes']:3d} passes  {row['spearman']:.4f}"
            )
    if arguments.out is not None:
        (arguments.out / "placement.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
