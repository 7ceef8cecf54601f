"""Twenty deletion requests on digits: do they take as long as was forecast, and is it true that they are forgotten?

    python benchmarks/requests.py --work .bench/requests [--workers 2]

Trains a run, calibrates it, draws requests that were not part of the calibration, plans and carries out each, and
trains real oracles to judge them. What is finished is kept; run it again and it goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remanence.audit import METRICS, evaluate
from remanence.forecast import compare
from remanence.requests import (
    Calibration,
    CalibrationSettings,
    Orders,
    calibrate,
    forget,
    make_plan,
    read_calibration,
)
from remanence.requests.criterion import Criterion
from remanence.requests.request import Request
from remanence.requests.sets import DRAWS
from remanence.requests.stages import unlearn_until
from remanence.scores import score_table
from remanence.storage import SEAL, atomic, read_trace
from remanence.training import Recipe, Run, open_run
from remanence.training.run import RunSettings, train_run
from remanence.trials import cached_oracle
from remanence.types import ForgetSet

KINDS = ("random", "class", "mixture", "band", "mixture")
REQUESTS, ORACLES, SEED = 20, 3, 2024
RECIPE = Recipe(epochs=35, learning_rate=0.05, batch_size=32, weight_decay=1e-3)


def prepared(work: Path, workers: int) -> tuple[Run, Calibration]:
    """A run that nobody looked at while the defaults were chosen (those used seed 0), calibrated."""
    train_run(
        RunSettings("digits", "small_conv", RECIPE, seed=1, model_options={"width": 16}),
        work / "run",
        resume=True,
    )
    run = open_run(work / "run")
    if not (work / "run" / "calibration" / SEAL).exists():
        calibrate(
            run,
            CalibrationSettings(),
            workers=workers,
            on_done=lambda stage: print(stage.kind.name, flush=True),
        )
    return run, read_calibration(run)


def draw(run: Run) -> list[ForgetSet]:
    losses = score_table(read_trace(run.folder), ["privacy_loss"]).column("privacy_loss")
    labels = run.clean[0].take(losses.ids).labels.numpy()
    order = np.argsort(losses.values, kind="stable")
    rng = np.random.default_rng(SEED)
    made = []
    for number in range(REQUESTS):
        kind = KINDS[number % len(KINDS)]
        size = round(float(np.exp(rng.uniform(math.log(20), math.log(100)))))
        rows = DRAWS[kind](rng, order, labels, size)
        made.append(ForgetSet(f"{kind} {number}", losses.ids[rows]))
    return made


def carried_out(run: Run, calibration: Calibration, asked: ForgetSet, work: Path) -> dict[str, Any]:
    kept = work / "rows" / f"{asked.name.replace(' ', '-')}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    started = time.perf_counter()
    out = work / "new" / asked.name.replace(" ", "-")
    outcome = forget(run, Request(asked, "0" * 64), out, Orders(apart=True, look_in=(work / "nowhere",)))
    told, split = outcome.evidence, run.split(asked)
    oracles = [cached_oracle(run, asked, work / "oracles", seed=100 + i) for i in range(ORACLES)]
    theirs = [METRICS["mia"](evaluate(oracle.model(), split)) for oracle in oracles]
    own = METRICS["mia"](evaluate(outcome.run.model(), split))
    settings = calibration.settings
    never = Criterion("mia", 9.0, 0.0)
    params = {"method": settings.method, "options": settings.options, "budget": settings.budget, "seed": 0}
    rows, _ = unlearn_until(run, asked, params, never)
    wanted = Criterion("mia", float(np.mean(theirs)), 0.05)
    needed, stop = wanted.time(rows), stops(wanted, rows)
    row = {
        "request": asked.name,
        "size": len(asked.ids),
        "steps": told["actual"]["steps"],
        "reached": told["actual"]["reached"],
        "stopped_at": told["actual"]["stopped_at"],
        "oracle_mia": theirs,
        "mia": own,
        "oracle_needs": needed.value,
        "oracle_reached": needed.reached,
        "oracle_stops": stop,
        "accuracy": {r["metric"]: r["after"] - r["before"] for r in told["audit"]}["test"],
        "seconds": time.perf_counter() - started,
    }
    atomic.write_text(kept, json.dumps(row) + "\n")
    shutil.rmtree(out / "calibration")
    print(json.dumps(row), flush=True)
    return row


def foretold(run: Run, calibration: Calibration, asked: ForgetSet) -> dict[str, Any]:
    """What the plan says; changes nothing, so it can be made again."""
    plan = make_plan(run, Request(asked, "0" * 64), calibration).document()
    return {
        "median_percentile": plan["percentiles"]["50"],
        "action": plan["action"],
        "forecast": plan["forecast"]["steps"],
        "low": plan["forecast"]["low"],
        "high": plan["forecast"]["high"],
        "caveats": plan["caveats"],
        "expected_mia": plan["criterion"]["target"],
    }


def luck(run: Run, calibration: Calibration, asked: ForgetSet, work: Path) -> dict[str, Any]:
    """The same request unlearned again, with other orders of batches: how much of its time is chance?"""
    kept = work / "again" / f"{asked.name.replace(' ', '-')}.json"
    if not kept.exists():
        settings, criterion = calibration.settings, calibration.criterion(asked.ids)
        params = {"method": settings.method, "options": settings.options, "budget": settings.budget}
        runs = [unlearn_until(run, asked, params | {"seed": seed}, criterion)[0] for seed in (1, 2)]
        atomic.write_text(kept, json.dumps({"again": [criterion.time(rows).value for rows in runs]}) + "\n")
    return dict(json.loads(kept.read_text()))


def stops(criterion: Criterion, rows: list[dict[str, Any]]) -> int:
    """Where a run that knew the oracles would stop: at the evaluation that confirms."""
    times = sorted({row["step"] for row in rows})
    found = criterion.time(rows)
    return int(times[times.index(int(found.value)) + 1] if found.reached else times[-1])


def summary(rows: list[dict[str, Any]], calibration: Calibration) -> dict[str, Any]:
    constant = float(np.median([run.steps for run in calibration.runs("mia")]))
    errors = np.array([abs(row["forecast"] - row["steps"]) for row in rows])
    by_constant = np.array([abs(constant - row["steps"]) for row in rows])
    ratio = [row["stopped_at"] / row["oracle_stops"] for row in rows]
    first = [abs(row["mia"] - row["oracle_mia"][0]) <= 0.05 + 1e-9 for row in rows]
    mean = [abs(row["mia"] - np.mean(row["oracle_mia"])) <= 0.05 + 1e-9 for row in rows]
    between = [
        abs(a - b) <= 0.05 + 1e-9
        for row in rows
        for i, a in enumerate(row["oracle_mia"])
        for b in row["oracle_mia"][:i]
    ]
    differences = [abs(row["steps"] - each) for row in rows for each in row["again"]]
    means = np.array([np.mean([row["steps"], *row["again"]]) for row in rows])
    open_ones = [row["action"] != "nothing" for row in rows]
    return {
        "requests": len(rows),
        "inside": sum(inside(row) for row in rows),
        "median_error": float(np.median(errors)),
        "median_error_constant": float(np.median(by_constant)),
        "mean_error": float(errors.mean()),
        "mean_error_constant": float(by_constant.mean()),
        "median_error_open": float(np.median(errors[open_ones])) if any(open_ones) else None,
        "median_error_constant_open": float(np.median(by_constant[open_ones])) if any(open_ones) else None,
        "constant": constant,
        "median_ratio": float(np.median(ratio)),
        "within_first": int(sum(first)),
        "within_mean": int(sum(mean)),
        "oracles_agree": float(np.mean(between)),
        "reached": int(sum(row["reached"] for row in rows)),
        "median_luck": float(np.median(differences)),
        "mean_luck": float(np.mean(differences)),
        "quartiles": [float(each) for each in np.quantile([row["steps"] for row in rows], (0.25, 0.75))],
        "median_error_of_mean": float(np.median(np.abs(means - [row["forecast"] for row in rows]))),
        "median_error_constant_of_mean": float(np.median(np.abs(means - constant))),
        "below": int(sum(row["mia"] < np.mean(row["oracle_mia"]) for row in rows)),
    }


def page(found: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    total, settings, requests = found["summary"], found["settings"], found["requests"]
    n, options = total["requests"], ", ".join(f"{k} {v:g}" for k, v in settings["options"].items())
    nothing = sum(row["action"] == "nothing" for row in requests)
    small = [row for row in found["calibration"] if row["metric"] == "log_odds"]
    large = [row for row in found["calibration"] if row["metric"] == "mia"]
    lines = [
        "# Are forecasts of unlearning true?",
        "",
        f"`make bench-requests` wrote this page: {n} deletion requests on a run of digits (small_conv of width 16, "
        "35 epochs), none of them part of the calibration. Each was planned, carried out, and "
        f"judged by {ORACLES} models that were trained from scratch without it. Unlearning: {settings['method']}, "
        f"{options}, at most {settings['budget']} steps; retraining takes {found['retraining']['steps']:.0f}.",
        "",
        "## What came of it",
        "",
        "| | wanted | found | |",
        "|---|---|---|---|",
        verdict(
            f"steps inside the 90 % interval, of {n}", "at least 16", total["inside"], total["inside"] >= 16
        ),
        verdict(
            "median error of the forecast over that of the constant",
            "at most 0.5",
            f"{total['median_error']:.0f} / {total['median_error_constant']:.0f} = "
            f"{total['median_error'] / max(total['median_error_constant'], 1e-9):.2f}",
            2 * total["median_error"] <= total["median_error_constant"],
        ),
        verdict(
            "stop of `forget` over the stop by real oracles (median)",
            "at most 1.5",
            f"{total['median_ratio']:.2f}",
            total["median_ratio"] <= 1.5,
        ),
        verdict(
            f"within 5 points of one real oracle by MIA, of {n}",
            "at least 16",
            total["within_first"],
            total["within_first"] >= 16,
        ),
        verdict(f"the same beside the mean of {ORACLES} oracles", "", total["within_mean"], None),
        verdict("two real oracles within 5 points of each other", "", f"{total['oracles_agree']:.0%}", None),
        "",
        "The last line is the ceiling for the fourth: a request of 20 to 100 examples cannot be closer to one "
        "retrained model than retrained models are to each other.",
        "",
        f"Of the {n} requests, {nothing} looked forgotten before anything was done (*nothing measurable to remove*), "
        "which a plan knows; for these the forecast is 0 steps. Over the others "
        f"alone the median error is {total['median_error_open']:.0f} steps, the constant's "
        f"{total['median_error_constant_open']:.0f}.",
        "",
        "## Why the forecast does not do better here",
        "",
        "These requests are much alike. Random ones, classes and mixtures all hold easy and hard examples, so their "
        f"steps lie close together (half of them between {total['quartiles'][0]:.0f} and {total['quartiles'][1]:.0f}), "
        f"around the constant's {total['constant']:.0f}, and little is left for a privacy loss to tell apart. Over the "
        "calibration's sets, which reach from the easiest to the hardest, it does tell them apart (last table).",
        "",
        "And part is chance. The same request unlearned again with another order of batches takes another number of "
        f"steps: two such runs differ by {total['median_luck']:.0f} in the median and {total['mean_luck']:.0f} on "
        "average, which nobody can know beforehand. Five points of 40 examples are two examples: when a request first "
        "counts as forgotten hangs on a few that sit at the attacker's threshold. Against the mean of three runs the "
        f"forecast's median error is {total['median_error_of_mean']:.0f}, the constant's "
        f"{total['median_error_constant_of_mean']:.0f}.",
        "",
        "`forget` comes from below and stops at the first edge of the five points: its MIA is below the oracles' mean "
        f"in {total['below']} of {n} requests. That, and oracles that differ among themselves, is why some end further "
        "than five points from a single one.",
        "",
        "## The requests",
        "",
        "Percentile: of the request's median example by privacy loss. Again: steps with two other orders of "
        "batches. Stop: "
        "of `forget`, and of one that knew the real oracles.",
        "",
        "| request | ids | percentile | forecast | interval | steps | inside | again | stop | by oracles | "
        "MIA | expected "
        "| oracles | accuracy |",
        "|" + "---|" * 14,
        *(line(row) for row in requests),
        "",
        "## Predictors by leave-one-out on the calibration",
        "",
        f"Absolute errors in steps over {tally(large)} of 20 to 100 examples and {tally(small)} of fewer than 20. "
        f"Used for requests: {found['law']}. Laws know when there is nothing to do; the mean of the proxies and the "
        "constant do not.",
        "",
        "| predictor | median, large | mean, large | median, small | mean, small |",
        "|---|---|---|---|---|",
        *(
            f"| {a['predictor']} | {a['median_error']:.0f} | {a['mean_error']:.0f} | {b['median_error']:.0f} | "
            f"{b['mean_error']:.0f} |"
            for a, b in zip(found["leave_one_out"]["mia"], found["leave_one_out"]["log_odds"], strict=True)
        ),
        "",
        "How the settings came about, and what had been seen by then, is in "
        "[a decision of its own](../decisions/0009-request-settings.md).",
        "",
    ]
    return "\n".join(lines)


def tally(rows: list[dict[str, Any]]) -> str:
    reached, done = (sum(row[name] for row in rows) for name in ("reached", "done"))
    return f"{len(rows)} sets ({reached} unlearned in time, {done} of them with nothing to do)"


def verdict(what: str, wanted: str, value: object, holds: bool | None) -> str:
    return f"| {what} | {wanted} | {value} | {'' if holds is None else 'yes' if holds else '**no**'} |"


def inside(row: dict[str, Any]) -> bool:
    high = math.inf if row["high"] is None else row["high"]
    return bool(row["reached"] and row["low"] <= row["steps"] <= high)


def line(row: dict[str, Any]) -> str:
    high = "∞" if row["high"] is None else f"{row['high']:.0f}"
    steps = f"{row['steps']:.0f}" if row["reached"] else f"> {row['steps']:.0f}"
    theirs = f"{row['oracle_stops']}" if row["oracle_reached"] else f"> {row['oracle_stops']}"
    again = ", ".join(f"{each:.0f}" for each in row["again"])
    oracles = ", ".join(f"{each:.2f}" for each in row["oracle_mia"])
    return (
        f"| {row['request']} | {row['size']} | {row['median_percentile']:.0f} | {row['forecast']:.0f} | "
        f"{row['low']:.0f}–{high} | {steps} | {'yes' if inside(row) else 'no'} | {again} | {row['stopped_at']} | "
        f"{theirs} | {row['mia']:.2f} | {row['expected_mia']:.2f} | {oracles} | {100 * row['accuracy']:+.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=Path(".bench/requests"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--page", type=Path, default=Path("docs/results/forecast.md"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/requests.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    (given.work / "nowhere").mkdir(parents=True, exist_ok=True)
    run, calibration = prepared(given.work, given.workers)
    rows = [
        carried_out(run, calibration, asked, given.work)
        | luck(run, calibration, asked, given.work)
        | foretold(run, calibration, asked)
        for asked in draw(run)
    ]
    found = {
        "machine": {"cpu": platform.processor() or platform.machine(), "torch": torch.__version__},
        "settings": {"method": calibration.settings.method, "options": dict(calibration.settings.options)}
        | {"budget": calibration.settings.budget, "models": calibration.settings.models},
        "retraining": dict(calibration.retraining),
        "law": calibration.forecaster("mia").law,
        "leave_one_out": {
            metric: [vars(row) for row in compare(calibration.runs(metric))]  # type: ignore[arg-type]
            for metric in ("mia", "log_odds")
        },
        "calibration": [
            {
                key: row[key]
                for key in ("name", "metric", "size", "done", "steps", "reached", "accuracy_change")
            }
            | {"mean_loss": row["losses"]["mean"]}
            for row in calibration.rows
        ],
        "summary": summary(rows, calibration),
        "requests": rows,
    }
    given.results.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(given.results, json.dumps(found, indent=1) + "\n")
    atomic.write_text(given.page, page(found))
    print(json.dumps(found["summary"], indent=1))


if __name__ == "__main__":
    main()
