"""What exact per-example gradient norms cost, beside one plain forward and backward pass of the same batch.

    python benchmarks/norms.py            all cases, most of an hour on one core
    python benchmarks/norms.py --quick    few rounds
    python benchmarks/norms.py --own      without the peers, which keep their last figures

Ways take turns, round after round, so that a busy machine slows all of them alike; a figure is the median
over rounds of the ratio to the mean of the plain passes before and after. Peak memory comes from one process
for each way. Everything runs on one thread. Writes benchmarks/results/norms.json and docs/norms.svg;
cases that are not asked for keep their last figures, and each case is written when it is done.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from norm_ways import WAYS, Way, plain, training_step
from torch import Tensor, nn

import remanence as rm
from remanence.machine import norm_constants
from remanence.models import mlp, resnet18, vit_small

ROOT = Path(__file__).parent.parent
RESULTS, CHART = ROOT / "benchmarks/results/norms.json", ROOT / "docs/norms.svg"

CASES: dict[str, tuple[str, Callable[[], nn.Module], int]] = {
    "resnet18-w64-batch": ("ResNet-18 w64, BatchNorm", lambda: resnet18(64), 32),
    "resnet18-w16-batch": ("ResNet-18 w16, BatchNorm", lambda: resnet18(16), 32),
    "resnet18-w64-group": ("ResNet-18 w64, GroupNorm", lambda: resnet18(64, "group"), 32),
    "resnet18-w16-group": ("ResNet-18 w16, GroupNorm", lambda: resnet18(16, "group"), 32),
    "vit-small-6": ("ViT-small, depth 6", lambda: vit_small(6), 32),
    "mlp": ("MLP 3072-1024-1024-10", mlp, 64),
}
FLIGHT = ("resnet18-w64-group", "resnet18-w16-group", "vit-small-6")

SHORT = ("resnet18-w16-batch", "resnet18-w16-group", "mlp")
"""Passes of a tenth of a second and less: measured three times as often."""
SLOW, SLOW_ROUNDS = 6.0, 3
"""A way this many times slower than the plain pass is not asked more often than this."""


def problem(case: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    _, build, n = CASES[case]
    return build().eval(), torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,))


def clock(way: Way) -> float:
    start = time.process_time()
    way()
    return time.process_time() - start


def ratios(base: Way, ways: dict[str, Way], rounds: int) -> tuple[float, dict[str, list[float]]]:
    """Each way's time over that of the base before and after it, for every round."""
    seen: dict[str, list[float]] = {name: [] for name in ways}
    bases = []
    for _ in range(rounds):
        before = clock(base)
        for name, way in ways.items():
            if len(seen[name]) == SLOW_ROUNDS and min(seen[name]) > SLOW:
                continue
            taken = clock(way)
            after = clock(base)
            seen[name].append(2 * taken / (before + after))
            bases.append(after)
            before = after
    return statistics.median(bases), seen


OWN = ("forward only", "forward + input gradients", "loop of one")
"""Ways that are measured without the peers, beside our own."""


def built(case: str, own: bool) -> tuple[dict[str, Way], dict[str, str]]:
    """The ways that can run, warm, and the reasons of those that cannot."""
    model, x, y = problem(case)
    ways, refused = {}, {}
    for name, build in WAYS.items():
        if own and name not in OWN and not name.startswith("Remanence"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ways[name] = build(model, x, y)
                ways[name]()
        except Exception as problem_:
            ways.pop(name, None)
            refused[name] = f"{type(problem_).__name__}: {problem_}".splitlines()[0][:160]
    return ways, refused


def errors(case: str, ways: dict[str, Way]) -> dict[str, float]:
    """The largest relative error against the loop."""
    truth = ways["loop of one"]()
    assert truth is not None
    found = {}
    for name, way in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            norms = way()
        if norms is not None:
            found[name] = float(((norms.double() - truth.double()) / truth.double()).abs().max())
    return found


def peak(case: str, way: str) -> float | None:
    """Megabytes that the batch adds, in a process of its own that has warmed up with two examples."""
    found = alone("--peak", case, way)
    return None if found is None else float(found)


def alone(*arguments: str) -> Any:
    """What this script prints with these arguments in a process of its own, where no peer has filled the memory."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def print_peak(case: str, way: str) -> None:
    model, x, y = problem(case)
    warnings.simplefilter("ignore")
    build = plain if way == "plain" else WAYS[way]
    build(model, x[:2], y[:2])()
    run = build(model, x, y)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, the parent's among it
    start = memory_in_use("VmRSS")
    run()
    run()
    print((memory_in_use("VmHWM") - start) / 1024)


def memory_in_use(figure: str) -> int:
    """A figure of this process in kilobytes: what it holds (VmRSS), or held at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{figure}:"))


def measure(case: str, rounds: int, memory: bool, own: bool) -> dict[str, Any]:
    model, x, y = problem(case)
    ways, refused = built(case, own)
    wrong = errors(case, ways)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base, seen = ratios(plain(model, x, y), ways, rounds)
    rows = {
        name: {
            "ratio": round(statistics.median(values), 3),
            "spread": [round(min(values), 3), round(max(values), 3)],
            "error": wrong.get(name),
            "peak_mb": peak(case, name) if memory else None,
        }
        for name, values in seen.items()
    }
    mb = peak(case, "plain") if memory else None
    result = {"title": CASES[case][0], "batch": len(x), "plain_ms": round(1e3 * base, 1), "plain_peak_mb": mb}
    result["returned_memory"] = alone("--returned", case, str(rounds))
    if case in FLIGHT:
        result["in_flight"] = alone("--flight", case, str(rounds))
    return {**result, "ways": rows, "refused": refused}


RETURNED = ("forward + input gradients", "Remanence", "Remanence, single calls")
"""Ways that are also measured while the C library returns freed memory to the system, as it does by default."""


def returned(case: str, rounds: int) -> dict[str, float]:
    model, x, y = problem(case)
    ways = {name: WAYS[name](model, x, y) for name in RETURNED}
    for way in (*ways.values(), *ways.values()):
        way()
    base, seen = ratios(plain(model, x, y), ways, rounds)
    return {
        "plain_ms": round(1e3 * base, 1),
        **{name: round(statistics.median(values), 3) for name, values in seen.items()},
    }


def flight(case: str, rounds: int) -> dict[str, float]:
    model, x, y = problem(case)
    ways = {
        name: training_step(model, x, y, share) for name, share in (("shared", True), ("left alone", False))
    }
    for way in (*ways.values(), *ways.values()):
        way()
    _, seen = ratios(training_step(model, x, y, None), ways, rounds)
    return {name: round(statistics.median(values), 3) for name, values in seen.items()}


def draw(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    cases = results["cases"]
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.5), sharex=False)
    for axis, case in zip(axes.flat, cases.values(), strict=False):
        shown = {
            name: row["ratio"]
            for name, row in case["ways"].items()
            if name not in ("forward only", "forward + input gradients")
            and (row["error"] is None or row["error"] < 1e-3)
        }
        names = list(shown)[::-1]
        # of torch.func, the best chunk
        chunks = sorted(
            (name for name in names if name.startswith("torch.func")), key=lambda name: shown[name]
        )
        names = [name for name in names if name not in chunks[1:]]
        colours = ["#b5452c" if name.startswith("Remanence") else "#9aa5b1" for name in names]
        axis.barh(names, [min(shown[name], 5) for name in names], color=colours)
        for k, name in enumerate(names):
            axis.text(min(shown[name], 5) + 0.05, k, f"{shown[name]:.2f}", va="center", fontsize=8)
        axis.axvline(1, color="#333333", linewidth=0.8)
        axis.set_xlim(0, 5.8)
        axis.set_title(case["title"], fontsize=10)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        "Exact per-example gradient norms: time in plain forward+backward passes (one thread)", fontsize=11
    )
    figure.tight_layout()
    CHART.parent.mkdir(exist_ok=True)
    figure.savefig(CHART, metadata={"Date": None})


def merged(earlier: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The new figures, and the earlier ones of peers that were not measured again."""
    peers = {
        name: row
        for name, row in earlier.get("ways", {}).items()
        if name in WAYS and name not in measured["ways"]
    }
    return {
        **earlier,
        **{key: value for key, value in measured.items() if value is not None},
        "ways": {**measured["ways"], **peers},
        "refused": earlier.get("refused", measured["refused"]),
        "in_flight": measured.get("in_flight", earlier.get("in_flight")),
    }


def table(results: dict[str, Any]) -> None:
    for case in results["cases"].values():
        print(f"\n{case['title']}: plain {case['plain_ms']} ms, peak {case['plain_peak_mb'] or 0:.0f} MB")
        for name, row in case["ways"].items():
            error = "" if row["error"] is None else f"error {row['error']:.1e}"
            memory = "" if row["peak_mb"] is None else f"{row['peak_mb']:6.0f} MB"
            print(f"  {name:28s} {row['ratio']:6.2f}  {row['spread']}  {memory}  {error}")
        for name, reason in case["refused"].items():
            print(f"  {name:28s}      –  {reason}")
        for name, ratio in (case.get("returned_memory") or {}).items():
            print(f"  memory returned: {name:26s} {ratio:6.2f}")
        for name, ratio in (case.get("in_flight") or {}).items():
            print(f"  training step, {name:13s} {ratio:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine, no memory")
    parser.add_argument("--own", action="store_true", help="without the peers, which keep their last figures")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--peak", nargs=2, metavar=("CASE", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--flight", nargs=2, metavar=("CASE", "ROUNDS"), help=argparse.SUPPRESS)
    parser.add_argument("--returned", nargs=2, metavar=("CASE", "ROUNDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak:
        print_peak(*options.peak)
        return
    if options.returned:
        print(json.dumps(returned(options.returned[0], int(options.returned[1]))))
        return
    rm.keep_freed_memory()  # as the command does; for memory peaks the system's own way counts
    if options.flight:
        print(json.dumps(flight(options.flight[0], int(options.flight[1]))))
        return
    machine = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": 1,
        "constants": norm_constants().label,
    }
    before = json.loads(RESULTS.read_text())["cases"] if RESULTS.exists() else {}
    results: dict[str, Any] = {**machine, "cases": {case: before[case] for case in CASES if case in before}}
    for case in options.cases:
        rounds = (3 if options.quick else 9) * (3 if case in SHORT else 1)
        earlier = results["cases"].get(case, {})
        measured = measure(case, rounds, not options.quick, options.own)
        results["cases"][case] = merged(earlier, measured) if options.own else measured
        table({"cases": {case: results["cases"][case]}})
        sys.stdout.flush()
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    draw(results)
    print(f"\nWrote {RESULTS.relative_to(ROOT)} and {CHART.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
