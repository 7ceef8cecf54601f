"""The pieces of work that the demo is made of.

    train ──► select ──► oracle ─────────────┐
      │         │                            ├──► (results)
      ├─────────┴──► trial ──► tune ──► unlearn ┘

`trial` fine-tunes on a random forget set with each learning rate, `tune` chooses one of them, `unlearn`
fine-tunes on a difficulty band with the chosen one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn

from remanence.data import Split, digits
from remanence.forgetting import bands, random_set
from remanence.models import small_conv
from remanence.scores import PROXIES, SCORES
from remanence.storage import Draft, Folder, read_trace, write_trace
from remanence.study import StageKind
from remanence.training import Recipe, Recorder, load_weights, train_steps, write_weights
from remanence.trials import LearningRateTrial, choose_learning_rate, measure, run_trial
from remanence.types import ForgetSet
from remanence.unlearning import Finetune

METRICS = ("ua", "ra", "test", "mia")
_ORACLE_SEED = 10_000
"""Oracles start from other initial weights and see other batches than the model they judge."""


def _train(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    train, _ = digits()
    recipe, seed = Recipe(**params["recipe"]), params["seed"]
    model = _new_model(params["width"], seed)
    recorder = Recorder(
        model,
        train,
        total_steps=recipe.total_steps(len(train)),
        checkpoints=params["checkpoints"],
        placement="even",
        mechanism=recipe.mechanism(len(train), assumed_sigma=params["sigma"], model=model),
        provenance={"data": train.digest(), "seed": str(seed)},
    )
    for _ in train_steps(model, train, recipe, seed=seed):
        recorder.step()
    write_weights(draft, model)
    write_trace(draft, recorder.finish())


def _select(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    trace = read_trace(inputs[0])
    loss = SCORES["privacy_loss"](trace, alpha=params["alpha"], sigma=params["sigma"])
    columns = {name: SCORES[name](trace).values for name in PROXIES}
    draft.tensors("scores", {"ids": loss.ids, "privacy_loss": loss.values, **columns})
    draft.document("status", {"status": loss.status.value, "reasons": list(loss.reasons)})
    sets = (*bands(loss, params["size"]), random_set(loss.ids, params["size"], params["seed"]))
    draft.document("forget_sets", {each.name: each.ids.tolist() for each in sets})


def _oracle(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    split = _split(inputs[0], params["forget"])
    seed = _ORACLE_SEED + 100 * params["seed"] + params["replicate"]
    model = _new_model(params["width"], seed)
    *_, steps = train_steps(model, split.retain, Recipe(**params["recipe"]), seed=seed)
    write_weights(draft, model)
    draft.rows("measurements", map(asdict, measure(model, split, METRICS, step=steps, seed=params["seed"])))


def _trial(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    trained, selected = inputs
    _finetune(draft, trained, selected, params, Recipe(**params["recipe"]))


def _tune(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    """Inputs: for every seed its oracles, then its trials, one for each learning rate."""
    rates, n_oracles = params["learning_rates"], params["oracles"]
    group = n_oracles + len(rates)
    trials = []
    for seed, first in enumerate(range(0, len(inputs), group)):
        oracles, runs = inputs[first : first + n_oracles], inputs[first + n_oracles : first + group]
        goal = {name: float(np.mean([_values(o, name)[-1] for o in oracles])) for name in ("mia", "test")}
        for rate, run in zip(rates, runs, strict=True):
            curves = {name: _values(run, name)[1:] for name in ("mia", "test")}
            trials.append(LearningRateTrial(rate, seed, curves, goal))
    choice, table = choose_learning_rate(trials)
    draft.document("choice", {"learning_rate": choice, "distance_to_oracle": table})


def _unlearn(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    trained, selected, tuned = inputs
    rate = tuned.document("choice")["learning_rate"]
    _finetune(draft, trained, selected, params, Recipe(**{**params["recipe"], "learning_rate": rate}))


def _finetune(
    draft: Draft, trained: Folder, selected: Folder, params: Mapping[str, Any], recipe: Recipe
) -> None:
    split = _split(selected, params["forget"])
    model = _new_model(params["width"], seed=0)
    load_weights(trained, model)
    epoch = recipe.steps_per_epoch(len(split.retain))
    rows = run_trial(model, Finetune(recipe), split, METRICS, every=epoch, seed=params["seed"])
    draft.rows("measurements", map(asdict, rows))


def _new_model(width: int, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return small_conv(width=width)


def _split(selected: Folder, name: str) -> Split:
    train, test = digits()
    return Split(train, test, ForgetSet(name, np.asarray(selected.document("forget_sets")[name])))


def _values(folder: Folder, metric: str) -> list[float]:
    return [row["value"] for row in folder.rows("measurements") if row["metric"] == metric]


TRAIN = StageKind("train", 1, _train)
SELECT = StageKind("select", 1, _select)
ORACLE = StageKind("oracle", 2, _oracle)
TRIAL = StageKind("trial", 2, _trial)
TUNE = StageKind("tune", 3, _tune)
UNLEARN = StageKind("unlearn", 2, _unlearn)
