"""Two workers against one on a study of equal stages, and kills at random moments against an undisturbed run.

Prints one JSON line for each question asked. Both numbers of the ratio come from one run on one machine; a machine that
is busy with something else gives a ratio that says nothing, so its load is printed beside it.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from remanence.stages import Stage, Store, compute_stages
from remanence.stages.processes import Processes
from remanence.study.catalog import load_study
from remanence.study.graph import Graph

STUDY = "time-to-unlearn"


def equal_stages(count: int, epochs: int) -> list[Stage]:
    graph = Graph(load_study(STUDY, "smoke", [f"train.epochs={epochs}", "train.record=1", "model.width=8"]))
    return [graph.train(seed) for seed in range(count)]


def seconds_with(workers: int, stages: list[Stage], root: Path) -> float:
    store = Store(root / f"{workers}-workers")
    start = time.perf_counter()
    tally = compute_stages(stages, store, Processes(store.root, workers))
    assert tally.computed == len(stages)
    return time.perf_counter() - start


def measure_speedup(root: Path, count: int, epochs: int) -> dict[str, object]:
    stages = equal_stages(count, epochs)
    load = os.getloadavg()[0]
    one, two = (seconds_with(workers, stages, root) for workers in (1, 2))
    return {
        "stages": count,
        "one_worker_seconds": round(one, 1),
        "two_workers_seconds": round(two, 1),
        "ratio": round(one / two, 2),
        "load_before": round(load, 2),
        "cores": os.cpu_count(),
    }


def measure_kills(root: Path, kills: int) -> dict[str, object]:
    """SIGKILL the whole smoke study again and again; is the end the same as without?"""
    quiet, noisy = root / "quiet", root / "noisy"
    command = [sys.executable, "-m", "remanence", "study", "run", STUDY, "--preset", "smoke"]
    start = time.perf_counter()
    subprocess.run([*command, "--store", str(quiet)], check=True, stdout=subprocess.DEVNULL)
    whole, rng, done = time.perf_counter() - start, random.Random(0), 0
    for _ in range(kills):
        with subprocess.Popen([*command, "--store", str(noisy)], stdout=subprocess.DEVNULL) as started:
            time.sleep(rng.uniform(0.05, 0.2) * whole)
            if started.poll() is None:
                os.kill(started.pid, signal.SIGKILL)
                done += 1
        time.sleep(0.5)
    subprocess.run([*command, "--store", str(noisy)], check=True, stdout=subprocess.DEVNULL)
    compare = [sys.executable, "-m", "remanence", "study", "diff", STUDY, "--preset", "smoke", "--json"]
    found = subprocess.run(
        [*compare, "--store", str(quiet), "--other", str(noisy)], check=False, capture_output=True, text=True
    )
    return {"kills": done, "undisturbed_seconds": round(whole, 1), **json.loads(found.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--kills", type=int, default=0, help="also kill the smoke study so many times")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if arguments.stages:
            print(json.dumps(measure_speedup(root, arguments.stages, arguments.epochs)))
        if arguments.kills:
            print(json.dumps(measure_kills(root, arguments.kills)))


if __name__ == "__main__":
    main()
