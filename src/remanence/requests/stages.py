"""The two pieces of work that a calibration is made of: a reference model, and one set unlearned against the pool."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from remanence.audit import evaluate
from remanence.audit.membership import attack_result
from remanence.data import Split
from remanence.forecast import ReferencePool
from remanence.requests.criterion import Criterion, criterion_for
from remanence.requests.folds import deal_folds
from remanence.storage import Draft, Folder
from remanence.study import StageKind
from remanence.training import Run, open_run, train_steps
from remanence.training.run import seeded_model
from remanence.trials import UnlearnSettings, measure, sampled
from remanence.trials.unlearned import begun
from remanence.types import ForgetSet, as_ids
from remanence.unlearning import make_method

_POOL_SEED = 20_000
"""Reference models start from other initial weights and see other batches than the model they judge."""
WATCHED = ("mia", "log_odds", "ua", "ra", "test")
SAMPLE = 2000
"""Retain and test examples that an evaluation reads, at most."""


def watch_steps(run: Run, budget: int) -> tuple[int, ...]:
    """When to look: eight times an epoch for two and a half of them, where things change fast, then four times."""
    epoch = run.settings.recipe.steps_per_epoch(len(run.data()[0]))
    dense, sparse = max(1, epoch // 8), max(1, epoch // 4)
    early = min(budget, 20 * dense)
    return tuple(sorted({*range(0, early + 1, dense), *range(early, budget + 1, sparse), budget}))


def _reference(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    run = open_run(Path(params["run"]))
    train, test = run.data()
    labels = train.labels.numpy()
    gone = deal_folds(labels, params["models"], seed=params["seed"])[params["index"]]
    settings = replace(run.settings, seed=_POOL_SEED + 1000 * params["seed"] + params["index"])
    kept = train.without(train.ids[gone])
    model = seeded_model(settings, kept)
    started = time.perf_counter()
    *_, steps = train_steps(model, kept, settings.recipe, seed=settings.seed)
    seconds = time.perf_counter() - started
    seen = evaluate(model, Split(train, test, ForgetSet("left out", train.ids[gone])))
    log_odds, calls = np.zeros(len(train)), np.zeros(len(train))
    log_odds[gone] = (seen.forget.margin - seen.test.margin.mean()).numpy()
    calls[gone] = attack_result(seen, "confidence").calls
    draft.tensors("reference", {"left_out": gone, "log_odds": log_odds, "calls": calls})
    draft.document("facts", {"steps": steps, "seconds": seconds, "test": seen.test.accuracy})


def _trial(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    run = open_run(Path(params["run"]))
    pool = pool_from(run, inputs)
    forget = ForgetSet(params["name"], as_ids(params["ids"]))
    criterion = criterion_for(len(forget.ids), pool.expect(forget.ids))
    rows, seconds = unlearn_until(run, forget, params, criterion)
    found = criterion.time(rows)
    last = max(row["step"] for row in rows)
    accuracy = {row["step"]: row["value"] for row in rows if row["metric"] == "test"}
    start = next(row["value"] for row in rows if row["metric"] == criterion.metric)
    draft.rows("measurements", rows)
    draft.document(
        "outcome",
        {
            "metric": criterion.metric,
            "done": criterion.close(start),
            "steps": found.value,
            "reached": found.reached,
            "accuracy_change": accuracy[last] - accuracy[0],
            "seconds_a_step": seconds / max(last, 1),
        },
    )


def unlearn_until(
    run: Run, forget: ForgetSet, params: Mapping[str, Any], criterion: Criterion
) -> tuple[list[dict[str, Any]], float]:
    """Unlearn until the criterion holds or the budget ends; what was measured, and the seconds it took."""
    split = run.split(forget)
    method = make_method(params["method"], params["options"], run.settings.recipe)
    settings = UnlearnSettings(
        params["method"], params["options"], steps=params["budget"], seed=params["seed"]
    )
    _, training, budget = begun(run, split, settings, method)
    watched, at = sampled(split, SAMPLE, params["seed"]), set(watch_steps(run, params["budget"]))

    def look() -> list[dict[str, Any]]:
        found = measure(training.model, watched, WATCHED, step=training.step, seed=params["seed"])
        return [asdict(row) for row in found]

    rows, steps, done = look(), training.steps(), False
    started = time.perf_counter()
    while training.step < budget and not done:
        next(steps)
        if training.step in at:
            rows += look()
            done = criterion.holds(rows)
    return rows, time.perf_counter() - started


def pool_from(run: Run, references: Sequence[Folder]) -> ReferencePool:
    """The pool out of its models' artifacts."""
    train, _ = run.data()
    found = [each.tensors("reference") for each in references]
    left_out, log_odds, calls = (
        np.stack([each[name] for each in found]) for name in ("left_out", "log_odds", "calls")
    )
    return ReferencePool(train.ids, train.labels.numpy(), left_out, log_odds, calls)


REFERENCE = StageKind("reference", 1, _reference)
TRIAL = StageKind("calibration-trial", 4, _trial)
