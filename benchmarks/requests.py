"""Twenty deletion requests on digits: do they take as long as was forecast, are they forgotten, and does it pay?

    python benchmarks/requests.py --models 12 --work .bench/requests [--workers 2]

Trains a run, calibrates it with `auto` and as many reference models as are asked for (0 for none), draws requests that
were not part of the calibration, plans and carries out each, and trains real oracles to compare with. What is finished
is kept; run it again and it goes on. The page has a section for every number of models that was run.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from requests_page import COVERAGE, page

from remanence.audit import METRICS, evaluate
from remanence.experiments import Relearning, cached_oracle, oracle_seed
from remanence.requests import (
    Calibration,
    CalibrationSettings,
    ForgetOptions,
    Request,
    calibrate,
    forget,
    read_calibration,
)
from remanence.requests.calibration_sets import draw_calibration_sets
from remanence.scores import score_table
from remanence.storage import SEAL, atomic
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet

REQUESTS, ORACLES, SEED, RUN_SEED = 20, 3, 2025, 41
POINTS = 0.05
RECIPE = Recipe(epochs=35, learning_rate=0.05, batch_size=32, weight_decay=1e-3)
EPOCHS_AFTER = 3
"""Epochs of the test that a calibration set stays forgotten."""


def prepared(folder: Path, workers: int, models: int, seed: int = RUN_SEED) -> tuple[Run, Calibration | None]:
    """A run that nobody looked at while rules and defaults were chosen, calibrated if models are asked for."""
    settings = RunSettings("digits", "small_conv", RECIPE, seed=seed, model_options={"width": 16})
    train_run(settings, folder, resume=True)
    run = open_run(folder)
    if not models:
        return run, None
    if not (run.folder.path / "calibration" / SEAL).exists():
        how = CalibrationSettings(method="auto", models=models)
        calibrate(run, how, workers=workers, on_done=lambda stage: print(stage.kind, flush=True))
    return run, read_calibration(run)


def draw(run: Run) -> list[ForgetSet]:
    """Drawn like the calibration sets, for which the intervals are valid, with another seed."""
    losses = score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
    labels = run.clean[0].take(losses.ids).labels.numpy()
    return draw_calibration_sets(losses, labels, count=REQUESTS, sizes=(20, 100), seed=SEED)


def carry_out(run: Run, forget_set: ForgetSet, work: Path, models: int) -> dict[str, Any]:
    """One request, again with another order of batches, and its oracles."""
    name = forget_set.name.replace(" ", "-")
    kept = work / f"rows-{models}" / f"{name}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    results = [
        forget(
            run,
            Request(forget_set, "0" * 64),
            work / f"new-{models}" / f"{name}-{seed}",
            ForgetOptions(
                apart=True, look_in=(work / "nowhere",), keep_calibration=False, relearning=False, seed=seed
            ),
        )
        for seed in (0, 1)
    ]
    evidence, split = results[0].evidence, run.split(forget_set)
    oracles = [
        cached_oracle(run, forget_set, work / "oracles", seed=oracle_seed(SEED, index)).model()
        for index in range(ORACLES)
    ]
    values = {
        metric: [METRICS[metric](evaluate(model, split)) for model in (results[0].run.model(), *oracles)]
        for metric in ("ua", "mia_confidence", "test")
    }
    actual, forecast = evidence["actual"], evidence["plan"]["forecast"]
    row = {
        "request": forget_set.name,
        "size": len(forget_set.ids),
        "percentile": evidence["plan"]["percentiles"]["50"],
        **{end: forecast[end] for end in ("steps", "low", "high")},
        "taken": actual["steps"],
        "reached": actual["reached"],
        "inside": actual["inside_interval"],
        "stopped_at": actual["stopped_at"],
        "budget": actual["budget"],
        "again": results[1].evidence["actual"]["steps"],
        "outcome": evidence["outcome"],
        "verdict": actual["verdict"]["word"],
        "values": values,
    }
    atomic.write_text(kept, json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)
    return row


def close(values: dict[str, list[float]], index: int) -> bool:
    """Whether a model (0) or the last oracle is within five points of the mean of the other oracles, by UA and MIA."""
    others = slice(1, None) if index == 0 else slice(1, -1)
    return all(
        abs(values[metric][index] - float(np.mean(values[metric][others]))) <= POINTS + 1e-9
        for metric in ("ua", "mia_confidence")
    )


def calibration_steps(run: Run, calibration: Calibration | None) -> float:
    """Training steps of a calibration: its models, its trials, and the tests that these stay forgotten."""
    if calibration is None:
        return 0.0
    n = len(run.data()[0])
    models = sum(RECIPE.total_steps(n - int(left_out.sum())) for left_out in calibration.pool.left_out)
    after = EPOCHS_AFTER * RECIPE.steps_per_epoch(n)
    trials = sum(trial.last + (after if trial.stays is not None else 0) for trial in calibration.trials)
    return models + trials


def audit_steps(run: Run, rows: list[dict[str, Any]]) -> float:
    """Training steps of the audit of a request: copies of the new model are fine-tuned."""
    how, n = Relearning(), len(run.data()[0])
    on_retain = [len(how.shares) * how.epochs * RECIPE.steps_per_epoch(n - row["size"]) for row in rows]
    return float(np.mean(on_retain)) + how.steps


def break_even(cost: float, saved: float) -> int | None:
    """Requests after which a cost is won back, if each saves something."""
    return max(1, math.ceil(cost / saved)) if saved > 0 else None


def summary(run: Run, rows: list[dict[str, Any]], calibration: Calibration | None) -> dict[str, Any]:
    retraining = RECIPE.total_steps(len(run.data()[0]))
    known = [run.steps for run in calibration.runs] if calibration else [row["taken"] for row in rows]
    constant, cost = float(np.median(known)), calibration_steps(run, calibration)
    per_request = float(np.mean([row["stopped_at"] for row in rows]))
    audit = audit_steps(run, rows)
    return {
        "requests": len(rows),
        "inside": sum(row["inside"] for row in rows),
        "to_the_budget": sum(row["high"] >= row["budget"] for row in rows),
        "median_width": float(np.median([row["high"] - row["low"] for row in rows])),
        "median_error": float(np.median([abs(row["steps"] - row["taken"]) for row in rows])),
        "median_error_constant": float(np.median([abs(constant - row["taken"]) for row in rows])),
        "luck": [float(f([abs(row["taken"] - row["again"]) for row in rows])) for f in (np.median, np.mean)],
        "outcomes": {
            word: sum(row["outcome"] == word for row in rows) for row in rows for word in [row["outcome"]]
        },
        "close": sum(close(row["values"], 0) for row in rows),
        "oracle_close": sum(close(row["values"], -1) for row in rows),
        "retraining": retraining,
        "calibration_of_retraining": cost / retraining,
        "request_of_retraining": per_request / retraining,
        "audit_of_retraining": audit / retraining,
        "break_even": break_even(cost, retraining - per_request),
        "break_even_with_audits": break_even(cost, retraining - per_request - audit),
        "total_of_retrainings": (cost + len(rows) * per_request) / (len(rows) * retraining),
        "total_of_retrainings_with_audits": (cost + len(rows) * (per_request + audit))
        / (len(rows) * retraining),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path(".bench/requests"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--models", type=int, nargs="+", default=[0, 12, 40])
    parser.add_argument("--only-page", action="store_true", help="write the page from what is there")
    parser.add_argument("--page", type=Path, default=Path("docs/results/forecast.md"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    (given.work / "nowhere").mkdir(parents=True, exist_ok=True)
    for models in () if given.only_page else given.models:
        run, calibration = prepared(given.work / f"run-{models}", given.workers, models)
        rows = [carry_out(run, forget_set, given.work, models) for forget_set in draw(run)]
        results = {"models": models, "summary": summary(run, rows, calibration), "requests": rows}
        atomic.write_text(given.results / f"requests_{models}.json", json.dumps(results, indent=1) + "\n")
        print(json.dumps(results["summary"], indent=1))
    found = sorted(given.results.glob("requests_*.json"), key=lambda path: int(path.stem.split("_")[1]))
    kept = given.results / COVERAGE
    coverage = json.loads(kept.read_text()) if kept.exists() else []
    atomic.write_text(given.page, page([json.loads(path.read_text()) for path in found], ORACLES, coverage))


if __name__ == "__main__":
    main()
