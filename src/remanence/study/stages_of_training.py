"""Stages that train: the model that everything starts from, and the oracles that never saw a forget set."""

from __future__ import annotations

from torch import nn

from remanence.data import Examples
from remanence.storage import Draft, write_trace
from remanence.study.material import (
    Inputs,
    Params,
    examples_of,
    forget_set_of,
    new_model,
    poison_of,
    recipe_of,
)
from remanence.study.stages import StageKind
from remanence.training import Recorder, train_steps, write_weights
from remanence.tasks.randomness import derive_seed

ASSUMED_SIGMA = 0.1
"""What a trace's mechanism says where training had no noise; scores name their own."""


def _train(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: the forget sets to poison, if any."""
    train, _ = examples_of(params)
    poison = poison_of(params, train, inputs)
    train = train if poison is None else poison.applied(train)
    recipe, seed = recipe_of(params), params["seed"]
    model = new_model(params, train, seed)
    if not params["record"]:
        _take_all_steps(model, train, params, seed)
    else:
        recorder = Recorder(
            model,
            train,
            total_steps=recipe.total_steps(len(train)),
            checkpoints=params["record"],
            placement=params["placement"],
            mechanism=recipe.mechanism(len(train), assumed_sigma=ASSUMED_SIGMA, model=model),
            provenance={"data": params["data"]["digest"], "seed": str(seed)},
        )
        for _ in train_steps(model, train, recipe, seed=seed):
            recorder.step()
        write_trace(draft, recorder.finish())
    write_weights(draft, model)


def _oracle(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: the forget set."""
    train, _ = examples_of(params)
    retain = train.without(forget_set_of(inputs[0]).ids)
    seed = derive_seed(params["replicate"], "oracle")
    model = new_model(params, train, seed)
    _take_all_steps(model, retain, params, seed)
    write_weights(draft, model)


def _take_all_steps(model: nn.Module, examples: Examples, params: Params, seed: int) -> None:
    for _ in train_steps(model, examples, recipe_of(params), seed=seed):
        pass


TRAIN = StageKind("train", 1, _train)
ORACLE = StageKind("oracle", 1, _oracle)
