"""What does recording cost, and how well does it rank? Agreement with a trace of every epoch, against the overhead.

Four parts, each written to benchmarks/results/recorder.json when it is done:

1. `costs`: an exact pass, a forward pass and a step in flight beside training, in turns on the same model.
2. `agreement`: the recorder's own plan, replayed on runs that `recorder_runs.py` recorded densely, with a clock that
   runs by the measured costs. Ranks of the privacy losses are compared with those of the dense trace.
3. `halves`: exact passes over all examples, and twice as many over random halves of them, on the same runs.
4. `real`: `rm.Recorder(overhead=0.05)` in a real training loop, beside the same loop without it.

    python benchmarks/recorder.py --work .bench/recorder
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from recorder_page import write_page
from recorder_runs import CASES, EPOCHS, EXAMPLES, SEEDS, Case, run_path, start
from scipy.stats import spearmanr

import remanence as rm
from remanence.gradients import norms_in_flight
from remanence.scores import privacy_loss
from remanence.tasks.recipe import couples_examples
from remanence.training import Training, placed_steps
from remanence.training.example_statistics import error_norms, example_statistics, trace_from_rows
from remanence.training.overhead_plan import OverheadPlan
from remanence.types import Trace

ROOT = Path(__file__).parent.parent
RESULTS, CHART = ROOT / "benchmarks/results/recorder.json", ROOT / "docs/results/recorder.svg"
OVERHEADS = (0.01, 0.02, 0.05, 0.1, 0.2)
PASSES = (5, 9, 12, 19)
Floats = NDArray[np.float64]


def timed(work: Callable[[], object]) -> float:
    """Seconds of this process's own work: whoever else uses the machine does not count."""
    started = time.process_time()
    work()
    return time.process_time() - started


def epoch_of(training: Training, steps: Iterator[int], share: bool | None = None) -> None:
    """One epoch of training; with norms in flight that share work (True), leave it alone (False), or none."""
    for _ in range(training.steps_per_epoch):
        if share is None:
            next(steps)
            continue
        with norms_in_flight(training.model, share=share) as norms:
            next(steps)
        assert len(norms.values)


def costs(case: Case, examples: int, rounds: int) -> dict[str, float]:
    """Costs in epochs of training: medians over rounds in which all take turns."""
    training = start(replace(case, recipe=replace(case.recipe, epochs=10_000)), 0, examples)
    model, steps = training.model, training.steps()
    works: dict[str, Callable[[], object]] = {
        "exact": lambda: example_statistics(model, training.examples),
        "errors": lambda: error_norms(model, training.examples),
    }
    if not couples_examples(model.modules()):
        works["shared"] = lambda: epoch_of(training, steps, True)
        works["left alone"] = lambda: epoch_of(training, steps, False)
    ratios: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(rounds + 1):
        before = timed(lambda: epoch_of(training, steps))
        for name, work in works.items():
            taken = timed(work)
            after = timed(lambda: epoch_of(training, steps))
            if repeat:  # the first round warms up
                ratios[name].append(2 * taken / (before + after))
            before = after
    extra = {"shared": 1.0, "left alone": 1.0}
    return {
        name: round(max(0.0, statistics.median(seen) - extra.get(name, 0.0)), 3)
        for name, seen in ratios.items()
    }


class Dense:
    """A densely recorded run."""

    def __init__(self, path: Path, case: Case) -> None:
        self.tables = dict(np.load(path))
        self.epochs, self.n = self.tables["free"].shape
        self.per_epoch = math.ceil(self.n / case.recipe.batch_size)
        self.ends = np.arange(self.epochs + 1) * self.per_epoch
        self.mechanism = case.recipe.mechanism(self.n, assumed_sigma=0.1)
        self.names = np.arange(self.n)
        self.evaluated = len(self.tables["norms"]) == self.epochs + 1

    def loss(self, norms: NDArray[Any], steps: NDArray[np.int64]) -> Floats:
        return privacy_loss(Trace(self.names, steps, norms, self.mechanism)).values

    def truth(self, in_flight: bool) -> Floats:
        if in_flight:
            return self.loss(self.tables["flight"], self.ends[1:])
        return self.loss(self.tables["norms"], self.ends)

    def halves(self, in_flight: bool) -> float:
        """Rank agreement of the odd with the even rows: how far a trace of every epoch determines the ranks."""
        norms = self.tables["flight"] if in_flight else self.tables["norms"][1:]
        odd, even = (self.loss(norms[k::2], self.ends[1 + k :: 2]) for k in (0, 1))
        return float(spearmanr(odd, even).statistic)


def compared(values: Floats, truth: Floats) -> dict[str, float]:
    hard = truth >= np.quantile(truth, 0.9)
    return {
        "spearman": round(float(spearmanr(values, truth).statistic), 4),
        "hardest_decile": round(float(spearmanr(values[hard], truth[hard]).statistic), 4),
        "total": round(float(values.sum() / truth.sum()), 3),
    }


def held(norms: NDArray[Any]) -> NDArray[Any]:
    """Each example's next measured norm, or its last one, in place of NaN."""
    filled = norms.copy()
    for row in range(len(norms) - 2, -1, -1):
        filled[row] = np.where(np.isnan(filled[row]), filled[row + 1], filled[row])
    for row in range(1, len(norms)):
        filled[row] = np.where(np.isnan(filled[row]), filled[row - 1], filled[row])
    return filled


def replayed(run: Dense, overhead: float, cost: dict[str, float], way: str) -> dict[str, Any]:
    """What the recorder would have done with this budget, by the measured costs, and how well that ranks."""
    seconds = [0.0]
    plan = OverheadPlan(overhead, int(run.ends[-1]), run.n, run.per_epoch, clock=lambda: seconds[0])
    in_flight = way != "passes"
    rows = flown(run, plan, cost, way, seconds) if in_flight else passed(run, plan, cost, seconds)
    steps = np.array(list(rows))
    norms = np.stack([row["norms"] for row in rows.values()])
    trace = trace_from_rows(run.names, steps.tolist(), list(rows.values()), run.mechanism, {})
    truth = run.truth(in_flight)
    exact = ~np.isnan(norms).all(axis=1)
    kept = (held(norms), steps) if in_flight else (norms[exact], steps[exact])
    return {
        "overhead": overhead,
        "spent": round(plan.share, 4),
        "passes": plan.passes,
        "steps": plan.recorded_steps,
        "measured": round(float((~np.isnan(norms)).sum()) / (run.epochs * run.n), 4),
        **compared(privacy_loss(trace).values, truth),
        "held": compared(run.loss(*kept), truth),
    }


def passed(run: Dense, plan: OverheadPlan, cost: dict[str, float], seconds: list[float]) -> dict[int, Any]:
    """Rows of a recorder that makes exact passes; training errors between them, whose confidence is not replayed."""
    rows: dict[int, Any] = {}
    for epoch in range(1, run.epochs + 1):
        seconds[0] += 1.0
        plan.note_errors(float(np.mean(run.tables["free"][epoch - 1].astype(np.float64) ** 2)))
        step = int(run.ends[epoch])
        if plan.makes_pass(step):
            with plan.passing(step):
                seconds[0] += cost["exact"]
            rows[step] = {name: run.tables[name][epoch] for name in ("norms", "confidence", "error")}
        else:
            errors = run.tables["free"][epoch - 1]
            rows[step] = {"norms": np.full(run.n, np.nan, np.float32), "confidence": errors, "error": errors}
    return rows


def flown(
    run: Dense, plan: OverheadPlan, cost: dict[str, float], way: str, seconds: list[float]
) -> dict[int, Any]:
    """Rows of a recorder in flight; confidence is not replayed."""
    extra = cost[way]
    rows: dict[int, Any] = {}
    moments = run.tables["moments"]
    for epoch in range(run.epochs):
        norms = np.full(run.n, np.nan, np.float32)
        for step in range(epoch * run.per_epoch, (epoch + 1) * run.per_epoch):
            columns = np.flatnonzero(moments[epoch] == step)
            recorded = plan.records_step(columns, step)
            taken = (1 + extra * recorded) / run.per_epoch
            seconds[0] += taken
            plan.note_step(columns, step, taken, recorded=recorded)
            if recorded:
                norms[columns] = run.tables["flight"][epoch, columns]
        errors = run.tables["free"][epoch]
        plan.note_errors(float(np.mean(errors.astype(np.float64) ** 2)))
        rows[int(run.ends[epoch + 1])] = {"norms": norms, "confidence": errors, "error": errors}
    missing = np.isnan([row["norms"] for row in rows.values()]).all(axis=0)
    with plan.spending():  # at the end, the recorder measures what no step has measured
        seconds[0] += cost["exact"] * missing.mean()
    norms[missing] = run.tables["norms"][-1, missing]
    return rows


def by_count(run: Dense, passes: int) -> dict[str, Any]:
    """Exact passes at log-spaced epochs: held, or filled from the free errors of training or from forward passes."""
    truth = run.truth(in_flight=False)
    epochs = placed_steps(run.epochs, passes, "log")[1:]
    norms = np.full((run.epochs, run.n), np.nan, np.float32)
    norms[epochs - 1] = run.tables["norms"][epochs]
    ways = {"held": run.loss(run.tables["norms"][epochs], run.ends[epochs])}
    evaluated = run.tables["error"][1:]
    free = run.tables["free"].copy()
    free[epochs - 1] = evaluated[epochs - 1]
    for name, errors in (("free errors", free), ("forward passes", evaluated)):
        rows = [{"norms": a, "confidence": e, "error": e} for a, e in zip(norms, errors, strict=True)]
        trace = trace_from_rows(run.names, run.ends[1:].tolist(), rows, run.mechanism, {})
        ways[name] = privacy_loss(trace).values
    return {"passes": len(epochs), **{name: compared(values, truth) for name, values in ways.items()}}


def in_halves(run: Dense, passes: int, seed: int) -> dict[str, Any]:
    """Passes over all examples, and for the same cost twice as many over alternating random halves of them; held.

    Both at log-spaced epochs, the last one included. Filled rows use the errors of training between the passes.
    """
    first = np.zeros(run.n, bool)
    first[np.random.default_rng(seed).permutation(run.n)[: run.n // 2]] = True
    epochs = placed_steps(run.epochs, 2 * passes, "log")[1:]
    norms = np.full((run.epochs, run.n), np.nan, np.float32)
    errors = run.tables["free"].copy()
    for k, epoch in enumerate(epochs):
        half = first if k % 2 else ~first
        norms[epoch - 1, half] = run.tables["norms"][epoch, half]
        errors[epoch - 1, half] = run.tables["error"][epoch, half]
    rows = [{"norms": a, "confidence": e, "error": e} for a, e in zip(norms, errors, strict=True)]
    filled = trace_from_rows(run.names, run.ends[1:].tolist(), rows, run.mechanism, {})
    whole, truth = by_count(run, passes), run.truth(in_flight=False)
    return {
        "passes": whole["passes"],
        "whole": {name: whole[name]["spearman"] for name in ("held", "free errors")},
        "halves": {
            "held": compared(run.loss(held(norms[epochs - 1]), run.ends[epochs]), truth)["spearman"],
            "free errors": compared(privacy_loss(filled).values, truth)["spearman"],
        },
        "cost": [whole["passes"], len(epochs) / 2],
    }


def halves_of_passes(work: Path, examples: int) -> dict[str, Any]:
    """`in_halves` on every dense run with all norms in evaluation mode, for ten partitions into halves."""
    found = {}
    for name, case in CASES.items():
        paths = [path for seed in SEEDS if (path := run_path(work, name, seed, examples)).exists()]
        dense = [run for run in (Dense(path, case) for path in paths) if run.evaluated]
        if dense:
            found[name] = [
                [in_halves(run, passes, seed) for run in dense for seed in range(10)] for passes in PASSES
            ]
    return found


def agreement(work: Path, examples: int, measured: dict[str, dict[str, float]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        runs = [run_path(work, name, seed, examples) for seed in SEEDS]
        dense = [Dense(path, case) for path in runs if path.exists()]
        if not dense or name not in measured:
            continue
        cost = measured[name]
        ways = ["passes", *(way for way in ("shared", "left alone") if way in cost)]
        evaluated = [run for run in dense if run.evaluated]
        found[name] = {
            "title": case.title,
            "examples": examples,
            "seeds": len(dense),
            "halves": {
                way: [
                    round(run.halves(way == "in flight"), 4)
                    for run in (evaluated if way == "passes" else dense)
                ]
                for way in ("passes", "in flight")
                if way == "passes" or len(ways) > 1
            },
            "budgets": {
                way: [
                    [replayed(run, overhead, cost, way) for run in (evaluated if way == "passes" else dense)]
                    for overhead in OVERHEADS
                ]
                for way in ways
            },
            "counts": [[by_count(run, passes) for run in evaluated] for passes in PASSES],
        }
        if len(ways) > 1:
            found[name]["in_flight_and_evaluated"] = [
                round(float(spearmanr(run.truth(True), run.truth(False)).statistic), 4) for run in evaluated
            ]
    return found


class Stopwatch:
    """Processor time of one of two loops that take turns."""

    def __init__(self) -> None:
        self.total = 0.0
        self.began: float | None = None

    def __call__(self) -> float:
        return self.total + (0.0 if self.began is None else time.process_time() - self.began)

    def run(self, work: Callable[[], object]) -> None:
        self.began = time.process_time()
        work()
        self.total = self()
        self.began = None


def real(case: Case, examples: int, epochs: int) -> dict[str, Any]:
    """Time of a loop with `rm.Recorder(overhead=0.05)` beside the same loop without; their epochs take turns."""
    case = replace(case, recipe=replace(case.recipe, epochs=epochs))
    plain, watched = start(case, 0, examples), start(case, 0, examples)
    share = not couples_examples(watched.model.modules())
    options = {"mechanism": watched.recipe.mechanism(examples, assumed_sigma=0.1), "share": share}
    recorder = rm.Recorder(
        watched.model, watched.examples, total_steps=watched.total_steps, overhead=0.05, **options
    )
    without, recorded = Stopwatch(), Stopwatch()
    recorder._plan.clock, recorder._plan._began = recorded, 0.0  # its own loop only, not the other one
    steps, recorded_steps = plain.steps(), watched.steps()
    for _ in range(epochs):
        without.run(lambda: epoch_of(plain, steps))
        recorded.run(lambda: recorded_epoch(watched, recorded_steps, recorder))
    return {
        "examples": examples,
        "epochs": epochs,
        "share": share,
        "overhead": round(recorded() / without() - 1, 4),
        "summary": recorder.summary,
    }


def recorded_epoch(training: Training, steps: Iterator[int], recorder: rm.Recorder) -> None:
    for _ in range(training.steps_per_epoch):
        (term,) = training.objective.terms(training.step)
        with recorder.batch(training.examples.ids[term.stream.rows(term.index).numpy()]):
            next(steps)
        recorder.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="epochs of the real runs")
    parser.add_argument("--parts", nargs="*", default=["costs", "real", "agreement", "halves"])
    parser.add_argument(
        "--cases", nargs="*", default=list(CASES), choices=list(CASES), help="of costs and real"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rm.keep_freed_memory()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in arguments.parts:
        if part == "halves":
            results[part] = halves_of_passes(arguments.work, arguments.examples)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            continue
        if part == "agreement":
            results[part] = agreement(arguments.work, arguments.examples, results["costs"])
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            continue
        measure, amount = (costs, arguments.rounds) if part == "costs" else (real, arguments.epochs)
        for name in arguments.cases:
            case = CASES[name]
            results.setdefault(part, {})[name] = measure(case, arguments.examples, amount)
            print(part, name, results[part][name], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if results.get("agreement"):
        table(results["agreement"])
        draw(results["agreement"])
        write_page(results)


def table(found: dict[str, Any]) -> None:
    for name, case in found.items():
        print(f"\n{case['title']}: {case['seeds']} seeds, odd and even rows agree by {case['halves']}")
        for way, budgets in case["budgets"].items():
            for runs in budgets:
                shown = {
                    key: mean_of(runs, key) for key in ("spent", "measured", "spearman", "hardest_decile")
                }
                kept = mean_of([run["held"] for run in runs], "spearman")
                print(f"  {name} {way:10s} {runs[0]['overhead']:.2f} {shown} held {kept:.3f}")


def mean_of(runs: list[dict[str, Any]], key: str) -> float:
    return round(statistics.fmean(run[key] for run in runs), 4)


def draw(found: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 3.6), sharey=True, squeeze=False)
    colours = {"passes": "#9aa5b1", "shared": "#b5452c", "left alone": "#2c6fb5"}
    for axis, case in zip(axes.flat, found.values(), strict=True):
        for way, budgets in case["budgets"].items():
            label = way if way == "passes" else f"in flight, {way}"
            for style, key in (("-", None), (":", "held")):
                points = [
                    (100 * run["spent"], (run if key is None else run[key])["spearman"])
                    for runs in budgets
                    for run in runs
                ]
                seeds = len(budgets[0])
                means = [np.mean(points[i * seeds : (i + 1) * seeds], axis=0) for i in range(len(budgets))]
                axis.plot(
                    *zip(*means, strict=True), style, color=colours[way], label=label if key is None else None
                )
                if key is None:
                    axis.plot(*zip(*points, strict=True), ".", color=colours[way], alpha=0.5)
        axis.axvline(5, color="#333333", linewidth=0.6)
        axis.axhline(0.99, color="#333333", linewidth=0.6)
        axis.set_xscale("log")
        axis.set_ylim(0, 1.02)
        axis.set_title(case["title"], fontsize=9)
        axis.set_xlabel("overhead, % of training")
        axis.legend(fontsize=7, loc="lower right")
        axis.spines[["top", "right"]].set_visible(False)
    axes.flat[0].set_ylabel("Spearman with the trace of every epoch")
    figure.tight_layout()
    figure.savefig(CHART, metadata={"Date": None})


if __name__ == "__main__":
    main()
