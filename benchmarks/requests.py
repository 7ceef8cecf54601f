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
from requests_page import inside, page

from remanence.audit import METRICS, evaluate
from remanence.experiments import Evaluations, cached_oracle, oracle_seed, sampled, unlearn_and_measure
from remanence.experiments.unlearn import begin_unlearning
from remanence.forecast import compare
from remanence.requests import (
    Calibration,
    CalibrationSettings,
    ForgetOptions,
    Request,
    calibrate,
    forget,
    make_plan,
    read_calibration,
)
from remanence.requests.calibration_sets import draw_calibration_sets
from remanence.requests.criterion import SAMPLE, Criterion, criterion_for, monitored_settings
from remanence.scores import score_table
from remanence.storage import SEAL, atomic
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet, Measurement

REQUESTS, ORACLES, SEED = 20, 3, 2025
RECIPE = Recipe(epochs=35, learning_rate=0.05, batch_size=32, weight_decay=1e-3)


def prepared(work: Path, workers: int, models: int) -> tuple[Run, Calibration]:
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
            CalibrationSettings(models=models),
            workers=workers,
            on_done=lambda stage: print(stage.kind, flush=True),
        )
    return run, read_calibration(run)


def draw(run: Run) -> list[ForgetSet]:
    """Drawn like the calibration sets, for which the intervals are valid, with another seed."""
    losses = score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
    labels = run.clean[0].take(losses.ids).labels.numpy()
    return draw_calibration_sets(losses, labels, count=REQUESTS, sizes=(20, 100), seed=SEED)


def unlearn_again(
    run: Run, calibration: Calibration, forget_set: ForgetSet, criterion: Criterion | None, *, seed: int
) -> list[Measurement]:
    """Unlearn as a request would be; without a criterion, to the end of the budget."""
    settings = calibration.settings
    assert settings.budget is not None  # a calibration has resolved settings
    split = run.split(forget_set)
    unlearning = monitored_settings(run, settings.method, settings.options, settings.budget, seed)
    _, training, total = begin_unlearning(run, split, unlearning)
    evaluations = Evaluations(sampled(split, SAMPLE, seed), unlearning.metrics, unlearning.at, seed)
    until = (lambda rows: False) if criterion is None else criterion.holds
    return unlearn_and_measure(training, evaluations, steps=total, until=until).rows


def carry_out(run: Run, calibration: Calibration, forget_set: ForgetSet, work: Path) -> dict[str, Any]:
    kept = work / "rows" / f"{forget_set.name.replace(' ', '-')}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    started = time.perf_counter()
    out = work / "new" / forget_set.name.replace(" ", "-")
    options = ForgetOptions(apart=True, look_in=(work / "nowhere",))
    result = forget(run, Request(forget_set, "0" * 64), out, options)
    evidence, split = result.evidence, run.split(forget_set)
    oracles = [
        cached_oracle(run, forget_set, work / "oracles", seed=oracle_seed(SEED, index))
        for index in range(ORACLES)
    ]
    oracle_mia = [METRICS["mia_confidence"](evaluate(oracle.model(), split)) for oracle in oracles]
    rows = unlearn_again(run, calibration, forget_set, None, seed=0)
    by_oracles = Criterion("mia_confidence", float(np.mean(oracle_mia)), 0.05)
    needed = by_oracles.time(rows)
    row = {
        "request": forget_set.name,
        "size": len(forget_set.ids),
        "steps": evidence["actual"]["steps"],
        "reached": evidence["actual"]["reached"],
        "stopped_at": evidence["actual"]["stopped_at"],
        "oracle_mia": oracle_mia,
        "mia_confidence": METRICS["mia_confidence"](evaluate(result.run.model(), split)),
        "oracle_needs": needed.value,
        "oracle_reached": needed.reached,
        "oracle_stops": stopping_step(by_oracles, rows),
        "accuracy": {r["metric"]: r["after"] - r["before"] for r in evidence["audit"]}["test"],
        "seconds": time.perf_counter() - started,
    }
    atomic.write_text(kept, json.dumps(row) + "\n")
    shutil.rmtree(out / "calibration")
    print(json.dumps(row), flush=True)
    return row


def plan_of(run: Run, calibration: Calibration, forget_set: ForgetSet) -> dict[str, Any]:
    plan = make_plan(run, Request(forget_set, "0" * 64), calibration).document()
    return {
        "median_percentile": plan["percentiles"]["50"],
        "action": plan["action"],
        "forecast": plan["forecast"]["steps"],
        "low": plan["forecast"]["low"],
        "high": plan["forecast"]["high"],
        "caveats": plan["caveats"],
        "expected_mia": plan["criterion"]["target"],
    }


def repeat(run: Run, calibration: Calibration, forget_set: ForgetSet, work: Path) -> dict[str, Any]:
    """The same request with other orders of batches: how much of its time is due to chance?"""
    kept = work / "again" / f"{forget_set.name.replace(' ', '-')}.json"
    if not kept.exists():
        criterion = criterion_for(len(forget_set.ids), calibration.pool.expect(forget_set.ids))
        runs = [unlearn_again(run, calibration, forget_set, criterion, seed=seed) for seed in (1, 2)]
        atomic.write_text(kept, json.dumps({"again": [criterion.time(rows).value for rows in runs]}) + "\n")
    return dict(json.loads(kept.read_text()))


def stopping_step(criterion: Criterion, rows: list[Measurement]) -> int:
    """The step at which `forget` stops with this criterion: the evaluation that confirms it."""
    steps = sorted({row.step for row in rows})
    duration = criterion.time(rows)
    return steps[steps.index(int(duration.value)) + 1] if duration.reached else steps[-1]


def summary(rows: list[dict[str, Any]], calibration: Calibration) -> dict[str, Any]:
    constant = float(np.median([run.steps for run in calibration.runs("mia_confidence")]))
    errors = np.array([abs(row["forecast"] - row["steps"]) for row in rows])
    by_constant = np.array([abs(constant - row["steps"]) for row in rows])
    ratio = [row["stopped_at"] / row["oracle_stops"] for row in rows]
    first = [abs(row["mia_confidence"] - row["oracle_mia"][0]) <= 0.05 + 1e-9 for row in rows]
    mean = [abs(row["mia_confidence"] - np.mean(row["oracle_mia"])) <= 0.05 + 1e-9 for row in rows]
    between = [
        abs(a - b) <= 0.05 + 1e-9
        for row in rows
        for i, a in enumerate(row["oracle_mia"])
        for b in row["oracle_mia"][:i]
    ]
    differences = [abs(row["steps"] - steps) for row in rows for steps in row["again"]]
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
        "quartiles": np.quantile([row["steps"] for row in rows], (0.25, 0.75)).tolist(),
        "median_error_of_mean": float(np.median(np.abs(means - [row["forecast"] for row in rows]))),
        "median_error_constant_of_mean": float(np.median(np.abs(means - constant))),
        "below": int(sum(row["mia_confidence"] < np.mean(row["oracle_mia"]) for row in rows)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=Path(".bench/requests"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--models", type=int, default=40, help="reference models; with others, name another --work"
    )
    parser.add_argument("--page", type=Path, default=Path("docs/results/forecast.md"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/requests.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    (given.work / "nowhere").mkdir(parents=True, exist_ok=True)
    run, calibration = prepared(given.work, given.workers, given.models)
    rows = [
        carry_out(run, calibration, forget_set, given.work)
        | repeat(run, calibration, forget_set, given.work)
        | plan_of(run, calibration, forget_set)
        for forget_set in draw(run)
    ]
    results = {
        "machine": {"cpu": platform.processor() or platform.machine(), "torch": torch.__version__},
        "settings": {"method": calibration.settings.method, "options": dict(calibration.settings.options)}
        | {"budget": calibration.settings.budget, "models": calibration.settings.models},
        "oracles": ORACLES,
        "retraining": dict(calibration.retraining),
        "law": calibration.forecaster("mia_confidence").law,
        "leave_one_out": {
            metric: [vars(row) for row in compare(calibration.runs(metric))]  # type: ignore[arg-type]
            for metric in ("mia_confidence", "log_odds")
        },
        "calibration": [
            {
                "name": trial.run.name,
                "metric": trial.metric,
                "size": trial.run.difficulty.size,
                "done": trial.run.difficulty.done,
                "steps": trial.run.steps,
                "reached": trial.run.reached,
                "accuracy_change": trial.accuracy_change,
                "mean_loss": trial.run.difficulty.losses["mean"],
            }
            for trial in calibration.trials
        ],
        "summary": summary(rows, calibration),
        "requests": rows,
    }
    given.results.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(given.results, json.dumps(results, indent=1) + "\n")
    atomic.write_text(given.page, page(results))
    print(json.dumps(results["summary"], indent=1))


if __name__ == "__main__":
    main()
