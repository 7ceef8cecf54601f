"""How fast the dashboard answers with 50,000 examples, beside one forward pass of ResNet-18 over 500; and its memory.

    make bench-dashboard

A real dashboard is started over a run on 50,000 made-up colour pictures and asked over the loopback interface, as a
browser asks. Answers and forward passes take turns, so that both meet the same machine; each is the median. The data
are read and all scores computed when the dashboard starts; the page of somebody who asks at that very moment, and has
to wait for that, is reported by itself. Memory is the server's resident set: once a page of every sort has been seen,
and after 200 views of pages that nobody has seen yet.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import torch

import remanence as rm
from remanence.models import resnet18
from remanence.training.run_settings import RunSettings
from remanence.training.train_run import train_run

VIEWS = 200
SCORES = ("privacy_loss", "confidence", "error_norm")


def make_run(work: Path, n: int) -> Path:
    """A run on n pictures, a logistic regression: the dashboard does not mind which model."""
    out = work / f"run-{n}"
    if not (out / "remanence.json").exists():
        draw = np.random.default_rng(0)
        labels = draw.integers(10, size=n + 500)
        pixels = draw.integers(256, size=(n + 500, 32, 32, 3), dtype=np.uint8)
        pixels[:, :4, :8, 0] = (25 * labels)[:, None, None]
        work.mkdir(parents=True, exist_ok=True)
        pack = work / f"pictures-{n}.npz"
        np.savez(pack, x_train=pixels[:n], y_train=labels[:n], x_test=pixels[n:], y_test=labels[n:])
        recipe = rm.Recipe(epochs=1, learning_rate=0.01, batch_size=500)
        train_run(RunSettings(str(pack.resolve()), "logistic", recipe, record=35), out)
    return out


@contextmanager
def served(run: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A dashboard over the run: who asks it, and its process."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "remanence", "dashboard", str(run), "--port", "19642"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = ""
        while not (found := re.search(r"(http://\S+)\?(token=\S+)", address)):
            address += server.stdout.readline()
        with httpx.Client(base_url=found[1], follow_redirects=True, timeout=300) as client:
            client.get(f"/?{found[2]}").raise_for_status()
            yield client, server.pid
        server.terminate()


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ask(client: httpx.Client, address: str) -> Callable[[], object]:
    return lambda: client.get(address).raise_for_status()


def resident(process: int) -> float:
    """Megabytes in memory."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def answers(client: httpx.Client, repeats: int) -> dict[str, float]:
    """Seconds of answers and forward passes, in turns; every page asked for is one that was not asked before."""
    model, inputs = resnet18(16).eval(), torch.rand(500, 3, 32, 32)

    def forward() -> None:
        with torch.no_grad():
            model(inputs)

    forward()
    found: dict[str, list[float]] = {
        "forward_500": [],
        "first_page": [],
        "page": [],
        "filter": [],
        "brush": [],
        "points": [],
    }
    for i in range(repeats):
        found["forward_500"].append(timed(forward))
        found["first_page"].append(timed(ask(client, "/runs/0/examples")))
        found["page"].append(timed(ask(client, f"/runs/0/examples?page={i + 2}")))
        found["filter"].append(timed(ask(client, f"/runs/0/examples?label={i % 10}&low={i / 2:g}")))
        low = 10 ** (-6 + i / 10)
        brushed = f"score=privacy_loss&against=confidence&from={low:.4g}&against_from=0.05"
        found["brush"].append(timed(ask(client, f"/runs/0/examples?{brushed}")))
        found["points"].append(timed(ask(client, "/runs/0/points?score=privacy_loss&against=confidence")))
    return {name: statistics.median(times) for name, times in found.items()}


def memory(client: httpx.Client, process: int, n: int) -> dict[str, float]:
    """Megabytes before and after many views, with the pictures that a browser would load."""

    def view(i: int) -> None:
        score = SCORES[i % len(SCORES)]
        client.get(f"/runs/0/examples?score={score}&page={i + 1}").raise_for_status()
        for place in range(48 * i, 48 * (i + 1)):
            client.get(f"/runs/0/pictures/{place % n}.png").raise_for_status()
        client.get(f"/runs/0/examples/{i}").raise_for_status()

    for i in range(VIEWS // 2):  # fills the cache of thumbnails, which is bounded
        view(i)
    before = resident(process)
    for i in range(VIEWS // 2, VIEWS // 2 + VIEWS):
        view(i)
    return {"before": before, "after": resident(process), "views": VIEWS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--work", type=Path, default=Path(".bench/dashboard"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with served(make_run(options.work, options.n)) as (client, process):
        cold = timed(ask(client, "/runs/0/examples"))
        seconds = answers(client, options.repeats)
        used = memory(client, process, options.n)
    ratios = {
        name: value / seconds["forward_500"] for name, value in seconds.items() if name != "forward_500"
    }
    result = {
        "examples": options.n,
        "machine": platform.processor() or platform.machine(),
        "threads": 1,
        "repeats": options.repeats,
        "seconds": seconds | {"page_while_reading": cold},
        "ratio_to_forward_500": ratios | {"page_while_reading": cold / seconds["forward_500"]},
        "memory_mb": used,
        "memory_growth": used["after"] / used["before"] - 1,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "dashboard.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
