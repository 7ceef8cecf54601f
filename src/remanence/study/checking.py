"""Checks of a whole study, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import torch

from remanence.audit import METRICS
from remanence.batches import call
from remanence.data import Examples
from remanence.data.loading import DATASETS
from remanence.errors import InputError, RemanenceError, UnknownNameError
from remanence.models import MODELS
from remanence.scores import SCORES
from remanence.study.figures import FIGURES
from remanence.study.graph import CURVES, Graph
from remanence.study.settings import Study
from remanence.study.unlearn_stages import unlearning_recipe
from remanence.tasks import Recipe, Task
from remanence.unlearning import METHODS
from remanence.unlearning.registry import option_names


def check(study: Study) -> None:
    """Refuse a study with unknown names, missing data, a model that does not fit, or a figure that cannot be made."""
    _check_names(study)
    task = study.task.open()
    _check_model(study, task)
    _check_methods(study)
    _check_moments(study, task.train)
    _check_figure(study)
    seeds = study.seed_numbers
    if study.scoring_seed not in seeds:
        raise InputError(
            f"`forget.seed` must be one of the training runs {seeds[0]} to {seeds[-1]}; got {study.scoring_seed}."
        )


def _check_names(study: Study) -> None:
    _known("figure", [study.figure], FIGURES)
    _known("metric", (*study.audit.metrics, *study.tune.metrics), METRICS)
    _known("unlearning method", study.unlearn.methods, METHODS)
    _known("unlearning method", (*study.unlearn.options, *study.unlearn.per_method), METHODS)
    _known("score", study.score.proxies, SCORES)
    if ":" not in study.model.name:
        _known("model", [study.model.name], MODELS)
    if "/" not in study.data.source and "." not in study.data.source:
        _known("data set", [study.data.source], DATASETS)


def _check_methods(study: Study) -> None:
    """Make every method once, as its stages will."""
    several = study.noises if study.figure in ("times", "sizes") else ()
    for name in study.unlearn.methods:
        options = study.unlearn.options.get(name, {})
        _known(f"option of {name}", options, option_names(name) - {f.name for f in fields(Recipe)})
        own = study.unlearn.of(name).noise
        for noise in several or (study.train.recipe.noise if own is None else own,):
            recipe = study.with_noise(noise).train.recipe
            try:
                unlearn = study.unlearn
                METHODS[name](
                    unlearning_recipe(name, recipe, unlearn.epochs, unlearn.learning_rate, unlearn.schedule),
                    **options,
                )
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"`unlearn.options.{name}` must be what {name} takes; got {options}: {error}."
                ) from None


def _check_moments(study: Study, train: Examples) -> None:
    steps = study.train.recipe.total_steps(len(train))
    for name, moments in (("train.record", study.train.record), ("group.moments", study.group.moments)):
        if moments > steps and (name == "train.record" or study.figure == "group"):
            raise InputError(f"`{name}` must be at most the {steps} steps of training; got {moments}.")


def _check_figure(study: Study) -> None:
    """What one figure asks for beyond the others."""
    figure, metrics = study.figure, study.audit.metrics
    measured = CURVES if figure == "curves" else (*CURVES, "gus")
    if unmeasured := [metric for metric in metrics if metric not in measured]:
        raise InputError(
            f"`audit.metrics` must be among {', '.join(measured)}, which the figure {figure} can show; got "
            f"{unmeasured[0]!r}."
        )
    if unmeasured := [metric for metric in study.tune.metrics if metric not in CURVES]:
        raise InputError(f"`tune.metrics` must be among {', '.join(CURVES)}; got {unmeasured[0]!r}.")
    sizes = {Graph(study).size(size) for size in study.forget.sizes}
    enough = [
        (("hardest",), "score.proxies", study.score.proxies, 1),
        (("rankings",), "score.sigmas", study.score.sigmas, 2),
        (("sizes",), "forget.sizes", sizes, 2),
        (("times", "sizes", "curves", "barriers", "group"), "forget.bands", study.forget.bands, 2),
    ]
    for figures, name, given, least in enough:
        if figure in figures and len(given) < least:
            raise InputError(
                f"The figure {figure} needs at least {least} different `{name}`; got {len(given)}."
            )
    if study.forget.per_seed and figure == "barriers" and study.audit.oracles < 2:
        raise InputError(
            f"The figure barriers needs at least 2 `audit.oracles` per seed; got {study.audit.oracles}."
        )
    if figure == "hardest" and len(study.unlearn.methods) > 1:
        raise InputError(
            f"The figure hardest is of one method; `unlearn.methods` has {len(study.unlearn.methods)}."
        )
    if "privacy_loss" in study.score.proxies:
        raise InputError(
            "`score.proxies` must be other scores than privacy_loss, which they are compared with."
        )


def _check_model(study: Study, task: Task) -> None:
    """The model can be built, and accepts the examples."""
    try:
        model = task.new_model(seed=0).eval()
        with torch.no_grad():
            inputs, _ = task.train.batch(torch.arange(2))
            call(model, inputs)
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
