"""What stages work on: the examples and the models that a stage's parameters name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from remanence.data import Examples, Split, load_dataset
from remanence.data.loading import DATASETS
from remanence.data.sources import data_folder
from remanence.errors import DataError, InputError
from remanence.models import build_model
from remanence.storage import Folder
from remanence.study.settings import DataSettings
from remanence.training import Recipe, load_weights
from remanence.tasks.poison import Poison, draw_poison
from remanence.tasks.randomness import derive_seed
from remanence.types import ForgetSet, Ids, as_ids

Params = Mapping[str, Any]
Inputs = Sequence[Folder]
_DRAW = 0
"""The seed by which a part of a data set is drawn: the same part in every study."""


@lru_cache(maxsize=2)
def load_examples(source: str, train: int, test: int) -> tuple[Examples, Examples]:
    """Training and test examples; so many of each, or all when 0."""
    name = source if source in DATASETS else str(_place(source))
    whole = load_dataset(name)
    return _some(whole[0], train, "train"), _some(whole[1], test, "test")


def data_params(settings: DataSettings) -> dict[str, Any]:
    """What a stage's question says of the data: their name, and a digest that cannot lie."""
    named = {"source": settings.source, "train": settings.train, "test": settings.test}
    return named | {"digest": _digested(**named)[2]}


def examples_of(params: Params) -> tuple[Examples, Examples]:
    """The examples that a stage names; others in their place are refused."""
    data = params["data"]
    found = _digested(data["source"], data["train"], data["test"])
    if found[2] != data["digest"]:
        raise DataError(
            f"{data['source']} must hold the examples that the study was planned with; a worker found others. "
            "Check REMANENCE_DATA on all machines."
        )
    return found[0], found[1]


def recipe_of(params: Params) -> Recipe:
    """The training recipe that a stage names."""
    return Recipe(**params["recipe"])


def new_model(params: Params, train: Examples, seed: int = 0) -> nn.Module:
    """A model with the initial weights that a seed gives it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights"))
        return build_model(params["model"]["name"], train, **params["model"]["options"])


def model_from(folder: Folder, params: Params, train: Examples) -> nn.Module:
    """A model with the weights of an artifact, in evaluation mode."""
    model = new_model(params, train)
    load_weights(folder, model)
    return model.eval()


def forget_set_of(folder: Folder) -> ForgetSet:
    """The forget set that a stage chose."""
    document = folder.document("forget_set")
    return ForgetSet(document["name"], np.asarray(document["ids"]), document["provenance"])


def poison_of(params: Params, train: Examples, sets: Inputs) -> Poison | None:
    """The noise on these forget sets' inputs, if the stage asks for some; the same wherever it is asked for."""
    asked = params.get("poison")
    if asked is None:
        return None
    chosen = [_some_ids(forget_set_of(each).ids, asked["size"]) for each in sets]
    ids: Ids = as_ids(np.unique(np.concatenate(chosen)))
    return draw_poison(train, ids, variance=asked["variance"], seed=_DRAW)


def _some_ids(ids: Ids, size: int) -> Ids:
    """At most so many of a set, all when 0."""
    if not size or len(ids) <= size:
        return ids
    return ids[np.sort(np.random.default_rng(_DRAW).choice(len(ids), size, replace=False))]


def split_of(params: Params, forget: Folder, poison: Poison | None = None) -> Split:
    """The data of a stage with one forget set named."""
    train, test = examples_of(params)
    return Split(train if poison is None else poison.applied(train), test, forget_set_of(forget))


@lru_cache(maxsize=2)
def _digested(source: str, train: int, test: int) -> tuple[Examples, Examples, str]:
    ours, theirs = load_examples(source, train, test)
    return ours, theirs, f"{ours.digest()[:16]}-{theirs.digest()[:16]}"


def _place(source: str) -> Path:
    """A path as it is, or below the data folder."""
    path = Path(source).expanduser()
    below = data_folder() / path
    if path.exists() or below.exists():
        return path if path.exists() else below
    raise DataError(
        f"The study's data {source} must be there or in the data folder {data_folder()}; it is in neither. Say where "
        "it is with --data-dir or REMANENCE_DATA."
    )


def _some(examples: Examples, size: int, name: str) -> Examples:
    if size == 0 or size == len(examples):
        return examples
    if not 0 < size < len(examples):
        raise InputError(
            f"`data.{name}` must be between 1 and the {len(examples)} examples there are, or 0 for all; got {size}."
        )
    rng = np.random.default_rng((_DRAW, len(examples)))
    return examples.take(examples.ids[np.sort(rng.choice(len(examples), size, replace=False))])
