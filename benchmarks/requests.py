"""Twenty deletion requests on digits: do they take as long as was forecast, and is it true that they are forgotten?

    python benchmarks/requests.py --work .bench/requests [--workers 2]

Trains a run, calibrates it, draws requests that were not part of the calibration, plans and carries out each, and
trains real oracles to judge them. What is finished is kept; run it again and it goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from remanence.requests.sets import calibration_sets
from remanence.requests.stages import unlearn_until
from remanence.training.run import RunSettings, train_run
from remanence.trials import cached_oracle
from requests_page import inside, page

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
from remanence.scores import score_table
from remanence.storage import SEAL, atomic, read_trace
from remanence.training import Recipe, Run, open_run
from remanence.types import ForgetSet

REQUESTS, ORACLES, SEED = 20, 3, 2025
RECIPE = Recipe(epochs=35, learning_rate=0.05, batch_size=32, weight_decay=1e-3)


def prepared(work: Path, workers: int) -> tuple[Run, Calibration]:
    """A run that nobody looked at while rules and defaults were chosen (those used seeds 0 and 1), calibrated."""
    train_run(
        RunSettings("digits", "small_conv", RECIPE, seed=2, model_options={"width": 16}),
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
    """In the way of the calibration sets, which is what an interval promises anything for, by a seed of their own."""
    losses = score_table(read_trace(run.folder), ["privacy_loss"]).column("privacy_loss")
    labels = run.clean[0].take(losses.ids).labels.numpy()
    return calibration_sets(losses, labels, count=REQUESTS, sizes=(20, 100), seed=SEED)


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
        "oracles": ORACLES,
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
