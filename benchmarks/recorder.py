"""What does recording cost? Training and recording of ResNet-18 (width 16) on the CIFAR-10 pack, in one run.

Both are timed in turns on the same model, so that whatever else the machine does hits both; the ratio is what is
reported: the share that recording adds to a run of 150 epochs, for the paper's 35 even checkpoints and for the
adaptive placement. How many rows the latter takes, and how well the ranks agree with those of every epoch's
recording, is read from what benchmarks/placement.py measured, and stands beside it.

    python benchmarks/recorder.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from remanence.data import Examples, load_dataset
from remanence.models import resnet18
from remanence.training import Recipe, Training
from remanence.training.example_statistics import error_norms, example_statistics
from remanence.training.placement import CANDIDATES, TOLERANCE

PACK = Path(__file__).parents[2] / "shared" / "data" / "cifar10_12k.npz"
EPOCHS = 150


def timed(work: Callable[[], object]) -> float:
    """Seconds of this process's own work: whoever else uses the machine does not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


def agreement(table: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each data set: passes and rank agreement of the default placement, and of the paper's 35 even ones."""
    names = {f"adaptive {TOLERANCE}": "adaptive", "even": "even"}
    found: dict[str, dict[str, Any]] = {}
    for row in table:
        if row["rule"] == "right" and row["placement"] in names and row.get("checkpoints", 35) == 35:
            own = found.setdefault(row["data"], {})
            own[names[row["placement"]]] = {"passes": row["passes"], "spearman": round(row["spearman"], 4)}
    return found


def measure(norm: str, part: Examples, whole: int, rounds: int, rows: int) -> dict[str, object]:
    model = resnet18(width=16, norm=norm)
    training = Training(model, part, Recipe(epochs=1000, learning_rate=0.01, batch_size=128), seed=0)
    probes, steps = part.take(part.ids[:256]), training.steps()
    example_statistics(model, part.take(part.ids[:32]))
    ratios, probing = [], []
    for _ in range(rounds):
        epoch = timed(lambda: [next(steps) for _ in range(training.steps_per_epoch)])
        ratios.append(timed(lambda: example_statistics(model, part)) / epoch)
        probing.append(timed(lambda: error_norms(model, probes)) / (epoch * whole / len(part)))
    one = statistics.median(ratios)
    return {
        "pass_over_epoch": round(one, 3),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "overhead_35_even": round(36 * one / EPOCHS, 4),
        "overhead_adaptive": round((rows * one + CANDIDATES * statistics.median(probing)) / EPOCHS, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--examples", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--placement", type=Path, default=Path(__file__).parent / "results/placement.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    agreements = agreement(json.loads(arguments.placement.read_text()))
    rows = max(own["adaptive"]["passes"] for own in agreements.values())
    train, _ = load_dataset(PACK)
    part = train.take(train.ids[: arguments.examples])
    results: dict[str, Any] = {"rows": rows, "agreement": agreements}
    for name, own in agreements.items():
        print(name, own)
    for norm in ("batch", "group"):
        results[norm] = measure(norm, part, len(train), arguments.rounds, rows)
        print(norm, results[norm])
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "recorder.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
