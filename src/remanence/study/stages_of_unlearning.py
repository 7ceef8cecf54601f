"""Stages that unlearn, measure, and choose a learning rate."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from remanence.audit import METRICS, Context, Evaluation, evaluate
from remanence.data import Split
from remanence.errors import NumericalError
from remanence.storage import Draft, Folder
from remanence.study.material import (
    Inputs,
    Params,
    examples_of,
    model_from,
    poison_of,
    recipe_of,
    split_of,
)
from remanence.study.stages import StageKind
from remanence.training import write_weights
from remanence.trials import LearningRateTrial, choose_learning_rate
from remanence.trials.schedule import sampled
from remanence.types import Measurement
from remanence.unlearning import METHODS, Method

TUNED_ON = ("mia", "test")
"""The learning rate is chosen by the balance of these: forgetting, and utility."""


def _measure(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: a model, a forget set."""
    split = _watched(split_of(params, inputs[1]), params)
    model = model_from(inputs[0], params, split.train)
    draft.rows("measurements", _rows(evaluate(model, split), params, step=0))


def _unlearn(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: a model, a forget set, then the tuned learning rate where there is one, then the sets poisoned."""
    tuned = 1 if params["learning_rate"] is None else 0
    rate = inputs[2].document("choice")["learning_rate"] if tuned else params["learning_rate"]
    train, _ = examples_of(params)
    poison = poison_of(params, train, inputs[2 + tuned :])
    split = split_of(params, inputs[1], poison)
    model = model_from(inputs[0], params, split.train)
    watched, context = (
        _watched(split, params),
        Context(poison=poison, clean=None if poison is None else train),
    )
    steps_per_epoch = recipe_of(params).steps_per_epoch(len(split.retain))
    every, last = max(1, round(params["every"] * steps_per_epoch)), params["epochs"] * steps_per_epoch
    rows = _rows(evaluate(model, watched, context), params, step=0)
    diverged: str | None = None
    try:
        for step in method_of(params, rate)(model, split, seed=params["seed"]):
            if step % every == 0 or step == last:
                rows += _rows(evaluate(model, watched, context), params, step=step)
    except NumericalError as error:
        diverged = str(error)
    if diverged is None:
        write_weights(draft, model)
    draft.rows("measurements", rows)
    facts = {"steps_per_epoch": steps_per_epoch, "learning_rate": rate, "diverged": diverged}
    poisoned = 0 if poison is None else int(np.isin(split.forget.ids, poison.ids).sum())
    draft.document("unlearning", facts | {"poisoned": poisoned})


def _watched(split: Split, params: Params) -> Split:
    """What is measured on: the forget set, and a sample of the rest where that is enough."""
    return sampled(split, params["sample"], seed=0) if params["sample"] else split


def _rows(evaluation: Evaluation, params: Params, step: int) -> list[dict[str, Any]]:
    assert evaluation.split is not None  # `evaluate` gives it
    subset = evaluation.split.forget_set.name
    return [
        asdict(Measurement(name, subset, METRICS[name](evaluation), step, params["seed"]))
        for name in params["metrics"]
    ]


def method_of(params: Params, learning_rate: float) -> Method:
    """The unlearning method that a stage names."""
    trained = recipe_of(params)
    noisy = params["method"] == "noisy_finetune"
    recipe = replace(
        trained,
        epochs=params["epochs"],
        learning_rate=learning_rate,
        schedule="constant",
        milestones=(),
        noise=trained.noise if noisy else 0.0,
    )
    return METHODS[params["method"]](recipe, **params["options"])


def _tune(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: the oracles' measurements, then for every seed one unlearning run for each learning rate."""
    rates, n_oracles = params["learning_rates"], params["oracles"]
    oracles, runs = inputs[:n_oracles], inputs[n_oracles:]
    goal = {name: float(np.mean([values(each, name)[-1] for each in oracles])) for name in TUNED_ON}
    trials = [
        LearningRateTrial(
            rates[i % len(rates)], i // len(rates), {name: values(run, name)[1:] for name in TUNED_ON}, goal
        )
        for i, run in enumerate(runs)
        if run.document("unlearning")["diverged"] is None
    ]
    if not trials:
        raise NumericalError(
            f"Every learning rate of {list(rates)} diverged; try smaller ones (tune.learning_rates)."
        )
    choice, table = choose_learning_rate(trials)
    draft.document("choice", {"learning_rate": choice, "distance_to_oracle": table})


def values(folder: Folder, metric: str) -> list[float]:
    """One metric's measurements in an artifact, in the order of their steps."""
    return [row["value"] for row in folder.rows("measurements") if row["metric"] == metric]


MEASURE = StageKind("measure", 1, _measure)
UNLEARN = StageKind("unlearn", 1, _unlearn)
TUNE = StageKind("tune", 2, _tune)
