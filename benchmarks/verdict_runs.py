"""Real runs for `verdicts.py`: reference models, oracles, and unlearning that is watched until it stops.

For every seed a run on digits is trained, a reference pool as `remanence calibrate` trains it, and for every request
real oracles. Each model's signals on the forget set and on the data beside it are kept, so that any rule can be
tried on them later without a model. What is finished is kept; run it again and it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.audit import METRICS, Evaluation, evaluate
from remanence.audit.membership import attack_result
from remanence.experiments import half_of, oracle_seed, train_without
from remanence.experiments.unlearn import begin_unlearning
from remanence.forecast import ReferencePool
from remanence.requests.calibration import CalibrationSettings
from remanence.requests.calibration_sets import draw_calibration_sets
from remanence.requests.calibration_stages import training_losses
from remanence.requests.criterion import STOPPING_HALF, criterion_for, monitored_settings
from remanence.requests.reference_folds import assign_folds
from remanence.requests.verdict import Excess
from remanence.requests.verdict_signals import stopping_excess, stopping_outputs
from remanence.scores import score_table
from remanence.tasks import derive_seed
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet, Measurement

RECIPE = Recipe(epochs=35, learning_rate=0.05, batch_size=32, weight_decay=1e-3)
MODELS, ORACLES = CalibrationSettings().models, 3
METHOD = "finetune"
"""Moves slowly enough that models are met on the way that stopped 10 points short."""
DRAWS = ((12, (40, 100)), (3, (20, 39)), (3, (5, 19)))
"""How many requests of which sizes, for every seed."""
SUMMARY = ("mia_confidence", "stopping", "ua", "test", "stopping_log_odds")
"""Per model: the attack on all data and on the stopping half, errors on the forget set, test accuracy, log-odds."""
Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class Simulated:
    """The runs of one seed: arrays of the reference pool, and of each request."""

    folds: Arrays
    requests: list[Arrays]


def simulate(seed: int, work: Path) -> Simulated:
    """Everything of one seed; what was computed before is read."""
    folder = work / f"seed-{seed}"
    settings = RunSettings("digits", "small_conv", RECIPE, seed=seed, model_options={"width": 16})
    train_run(settings, folder / "run", resume=True)
    run = open_run(folder / "run")
    folds = _kept(folder / "folds.npz", lambda: _fold_arrays(run, seed))
    pool = _pool(run, folds)
    requests = []
    for number, forget_set in enumerate(_draw(run, seed)):
        file = folder / f"request-{number}.npz"
        requests.append(_kept(file, lambda chosen=forget_set: _request_arrays(run, pool, chosen, seed)))
        print(seed, forget_set.name, len(forget_set.ids), flush=True)
    return Simulated(folds, requests)


def _kept(file: Path, compute) -> Arrays:  # type: ignore[no-untyped-def]
    if not file.exists():
        partial = file.with_suffix(".partial.npz")
        np.savez_compressed(partial, **compute())
        partial.rename(file)
    return dict(np.load(file))


def _draw(run: Run, seed: int) -> list[ForgetSet]:
    losses = score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
    labels = run.clean[0].take(losses.ids).labels.numpy()
    return [
        forget_set
        for count, sizes in DRAWS
        for forget_set in draw_calibration_sets(losses, labels, count=count, sizes=sizes, seed=1000 + seed)
    ]


def _fold_arrays(run: Run, seed: int) -> Arrays:
    task = run.task
    losses = training_losses(run)
    left_out = assign_folds(task.train.strata, MODELS, seed=seed, losses=losses)
    arrays: Arrays = {"left_out": left_out, "losses": losses, "calls": np.zeros(left_out.shape)}
    arrays["ids"] = task.train.ids
    models = []
    for index, row in enumerate(left_out):
        fold = ForgetSet("fold", task.train.ids[row])
        model, _ = train_without(task, fold.ids, seed=derive_seed(seed, "fold", index))
        evaluation = evaluate(model, task.split(fold))
        arrays["calls"][index, row] = attack_result(_of_half(evaluation, 0), "confidence").calls
        signals = _signals(evaluation)
        spread = np.zeros((signals["forget"].shape[0], len(row)), np.float32)
        spread[:, row] = signals["forget"]
        logits = np.zeros((len(row), evaluation.forget.logits.shape[1]), np.float16)
        logits[row] = signals["logits"]
        models.append({"forget": spread, "test": signals["test"], "logits": logits})
    return arrays | {name: np.stack([model[name] for model in models]) for name in models[0]}


def _pool(run: Run, folds: Arrays) -> ReferencePool:
    train, _ = run.data()
    left_out, margin = folds["left_out"], folds["forget"][:, 0].astype(np.float64)
    log_odds = np.where(left_out, margin - folds["test"][:, 0, None], 0.0)
    return ReferencePool(
        train.ids, train.strata, left_out, log_odds, folds["calls"], losses=folds["losses"].astype(np.float64)
    )


def _request_arrays(run: Run, pool: ReferencePool, forget_set: ForgetSet, seed: int) -> Arrays:
    split = run.split(forget_set)
    excess = stopping_excess(run.model(), half_of(split, STOPPING_HALF), pool)
    oracles = []
    for index in range(ORACLES):
        model, _ = train_without(run.task, forget_set.ids, seed=oracle_seed(seed, index))
        oracles.append(_signals(evaluate(model, split)))
    snapshots, steps, reached = _unlearn(run, forget_set, excess, seed)
    arrays: Arrays = {
        "ids": split.forget.ids,
        "name": np.array(forget_set.name),
        "reached": np.array(reached),
        "steps": np.array(steps),
    }
    for prefix, models in (("oracle", oracles), ("snapshot", snapshots)):
        arrays |= {f"{prefix}_{name}": np.stack([model[name] for model in models]) for name in models[0]}
    return arrays


def _unlearn(
    run: Run, forget_set: ForgetSet, excess: Excess, seed: int
) -> tuple[list[Arrays], list[int], bool]:
    """Unlearn as `forget` does, with the signals of the model at every evaluation."""
    split, settings = run.split(forget_set), CalibrationSettings(METHOD).resolved(run)
    assert settings.budget is not None  # `resolved` sets it
    how = monitored_settings(run, settings.method, settings.options, settings.budget, seed)
    _, training, total = begin_unlearning(run, split, how)
    snapshots: list[Arrays] = []
    steps: list[int] = []
    rows: list[Measurement] = []
    taken, due = training.steps(), set(how.at)
    watched = half_of(split, STOPPING_HALF)
    before = excess(stopping_outputs(evaluate(run.model(), watched))["log_odds"])
    criterion = criterion_for(excess.error, before, run.settings.recipe.steps_per_epoch(len(split.retain)))
    while True:
        if training.step in due:
            evaluation = evaluate(training.model, split)
            snapshots.append(_signals(evaluation))
            steps.append(training.step)
            half = _of_half(evaluation, STOPPING_HALF)
            values = {
                "excess": excess(stopping_outputs(half)["log_odds"]),
                "test": METRICS["test"](half),
                "ra": METRICS["ra"](half),
            }
            rows += [
                Measurement(name, forget_set.name, value, training.step, seed)
                for name, value in values.items()
            ]
            if criterion.holds(rows):
                return snapshots, steps, True
        if training.step >= total:
            return snapshots, steps, False
        next(taken)


def _signals(evaluation: Evaluation) -> Arrays:
    """[signals, examples] log-odds, entropy and top log-odds of the forget set; their means on the unseen test half."""
    first, second = _of_half(evaluation, 0), _of_half(evaluation, 1)
    summary = [METRICS[name](evaluation) for name in ("mia_confidence", "ua", "test")]
    stopping = [METRICS[name](first) for name in ("mia_confidence", "log_odds")]
    return {
        "forget": _stacked(evaluation.forget),
        "test": _stacked(second.test).mean(axis=1),
        "logits": evaluation.forget.logits.numpy().astype(np.float16),
        "summary": np.array([summary[0], stopping[0], summary[1], summary[2], stopping[1]]),
    }


def _stacked(outputs) -> NDArray[np.float32]:  # type: ignore[no-untyped-def]
    logits = outputs.logits.double()
    highest, chosen = logits.max(dim=1)
    others = logits.scatter(1, chosen[:, None], -torch.inf).logsumexp(dim=1)
    return torch.stack([outputs.margin, outputs.entropy, highest - others]).numpy().astype(np.float32)


def _of_half(evaluation: Evaluation, half: int) -> Evaluation:
    """The evaluation on one half of the retain and test data."""
    assert evaluation.split is not None
    chosen = half_of(evaluation.split, half)
    return Evaluation(
        evaluation.forget,
        evaluation.retain.rows(np.isin(evaluation.split.retain.ids, chosen.retain.ids)),
        evaluation.test.rows(np.isin(evaluation.split.test.ids, chosen.test.ids)),
        evaluation.model,
        chosen,
    )
