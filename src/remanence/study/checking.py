"""Refuse a study that cannot work before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from remanence.audit import METRICS
from remanence.data import Examples
from remanence.data.loading import DATASETS
from remanence.errors import InputError, RemanenceError, UnknownNameError
from remanence.models import MODELS
from remanence.scores import SCORES
from remanence.study.figures import FIGURES
from remanence.study.material import load_examples, new_model
from remanence.study.settings import Study, plain
from remanence.unlearning import METHODS


def check(study: Study) -> None:
    """Every name is known, the data are there, and the model fits them."""
    _known("figure", [study.figure], FIGURES)
    _known("metric", study.audit.metrics, METRICS)
    _known("unlearning method", study.unlearn.methods, METHODS)
    _known("unlearning method", study.unlearn.options, METHODS)
    _known("score", study.score.proxies, SCORES)
    if ":" not in study.model.name:
        _known("model", [study.model.name], MODELS)
    if "/" not in study.data.source and "." not in study.data.source:
        _known("data set", [study.data.source], DATASETS)
    train, _ = load_examples(study.data.source, study.data.train, study.data.test)
    _fits(study, train)
    if not 0 <= study.forget.seed < study.seeds:
        raise InputError(
            f"`forget.seed` must be one of the training runs 0 to {study.seeds - 1}; got {study.forget.seed}."
        )


def _fits(study: Study, train: Examples) -> None:
    """Whether the model can be made, and takes the examples."""
    try:
        model = new_model({"model": plain(study.model)}, train).eval()
        with torch.no_grad():
            model(train.inputs[:2])
    except RemanenceError:
        raise
    except Exception as error:  # whatever a model's own function objects to
        raise InputError(
            f"The model {study.model.name} with {dict(study.model.options)} must fit the data "
            f"{study.data.source}; it does not: {str(error).splitlines()[0]}."
        ) from None


def _known(kind: str, names: Iterable[str], registry: Iterable[str]) -> None:
    known = list(registry)
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)
