"""Unlearn from a run, into another run: started, killed, resumed, finished."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from remanence.audit import Context, metrics_named
from remanence.data import Split
from remanence.errors import DataError, InputError, NumericalError
from remanence.storage import SEAL, Draft, seal_in_place
from remanence.storage.lock import exclusive
from remanence.training import ALONE, Checkpoints, Ranks, Run, Training, open_run, write_weights
from remanence.training.poison import write_poison
from remanence.training.run import UNFINISHED, Progress, claim, train_run
from remanence.trials.oracles import oracle_settings
from remanence.trials.schedule import affordable_steps, every_steps, sampled
from remanence.trials.trial import measure
from remanence.types import ForgetSet
from remanence.unlearning import Method, make_method

DEFAULT_METRICS = ("ua", "ra", "test", "mia")
Rows = Sequence[Mapping[str, Any]]
"""Measurements, as they are written."""
Until = Callable[[Rows], bool]
"""Asked after every evaluation, with all that was measured so far: whether to stop. Must depend on nothing else."""
Also = Callable[[Draft, nn.Module, Rows], Sequence[str]]
"""Writes further files into the run before it is sealed, and returns their names."""


@dataclass(frozen=True)
class UnlearnSettings:
    """What unlearning is asked to do.

    Args:
        method: its name.
        options: its hyperparameters, as `make_method` takes them.
        steps: stop after so many; the method's whole length when None. Where the method would end sooner, and its
            `epochs` were not given, it gets more of them.
        seed: of everything random.
        metrics: what to measure as it goes.
        every: steps between measurements; when None, densely at first, then sparsely, at no more than training costs.
        at: the steps to measure after, instead.
        sample: measure on at most so many retain and test examples; on all when None.
        checkpoint_every: steps between checkpoints of the state; an epoch when 0.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    seed: int = 0
    metrics: tuple[str, ...] = DEFAULT_METRICS
    every: int | None = None
    at: tuple[int, ...] = ()
    sample: int | None = None
    checkpoint_every: int = 0

    def __post_init__(self) -> None:
        metrics_named(self.metrics)
        for name in ("steps", "every", "sample"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"`{name}` must be at least 1; got {value}.")


def unlearn_run(
    run: Run,
    forget_set: ForgetSet,
    settings: UnlearnSettings,
    out: Path,
    *,
    resume: bool = False,
    ranks: Ranks = ALONE,
    progress: Progress = lambda done, total: None,
    until: Until = lambda rows: False,
    also: Also = lambda draft, model, rows: (),
    facts: Mapping[str, Any] | None = None,
) -> Run:
    """Unlearn a forget set from a run and leave a sealed run in `out`, with what was measured on the way.

    A killed unlearning goes on with `resume`, from its last checkpoint, and ends with the same bits as one that was
    never disturbed. `retrain` trains an oracle, just as `remanence train --without` would.

    Args:
        run: what to unlearn from.
        forget_set: what.
        settings: how.
        out: the new run's folder.
        resume: go on with an unfinished one.
        ranks: the processes that share the work.
        progress: told how far it is.
        until: stop sooner, once this holds of the measurements; on a single process.
        also: writes further files, sealed with the run.
        facts: further entries of the run's table `[unlearning]`; a run is resumed with the same ones only.
    """
    split = split_to_unlearn(run, forget_set)
    _check_metrics(settings, run, forget_set)
    method = make_method(settings.method, settings.options, run.settings.recipe)
    if settings.method == "retrain":
        return _retrain(run, forget_set, settings, method, out, resume, ranks, progress)
    method, training, total = begun(run, split, settings, method, ranks)
    config = asdict(run.settings) | {
        "unlearning": _description(run, forget_set, settings, method) | {"steps": total} | dict(facts or {})
    }
    fresh = ranks.first and claim(config, out, resume)
    ranks.wait()
    if not (out / SEAL).exists():
        with exclusive(out / f".lock-{ranks.rank}", f"Another process is unlearning in {out}; wait for it."):
            try:
                context = Context(poison=run.poison, clean=run.clean[0])
                rows = _unlearn(training, split, context, settings, out, total, until, progress)
            except InputError:
                if fresh:
                    (out / UNFINISHED).unlink(missing_ok=True)  # what cannot begin must not stand in the way
                raise
            if ranks.first:
                _seal(out, config, run, training, rows, also)
        ranks.wait()
    return open_run(out)


def split_to_unlearn(run: Run, forget_set: ForgetSet) -> Split:
    """The run's data with this forget set; what the run is without already cannot be unlearned."""
    for gone, why in (
        (run.forgotten, "already unlearned from"),
        (run.never_seen, "never part of training in"),
    ):
        overlap = np.intersect1d(forget_set.ids, gone)
        if len(overlap):
            raise DataError(
                f"Forget set {forget_set.name!r} must name examples that {run.folder.path} still holds; "
                f"{len(overlap)} of its {len(forget_set.ids)} were {why} it, the first is {overlap[0]}."
            )
    return run.split(forget_set)


def _check_metrics(settings: UnlearnSettings, run: Run, forget_set: ForgetSet) -> None:
    """Refuse a metric that needs what is not at hand while unlearning."""
    poisoned = run.poison is not None and bool(np.isin(forget_set.ids, run.poison.ids).any())
    for metric in metrics_named(settings.metrics):
        if metric.needs in ("oracles", "shadows"):
            raise InputError(
                f"`{metric.name}` needs {metric.needs}, which are not at hand while unlearning; use `remanence audit` "
                "on the run that this makes."
            )
        if metric.needs == "poison" and not poisoned:
            raise InputError(
                f"`{metric.name}` needs a run whose forget set was poisoned (`remanence train --poison SET`); "
                f"{run.folder.path} was not poisoned with any of {forget_set.name!r}."
            )


def begun(
    run: Run, split: Split, settings: UnlearnSettings, method: Method, ranks: Ranks = ALONE
) -> tuple[Method, Training, int]:
    """The method's run before its first step, long enough for the steps asked for."""
    training = method.begin(run.model(), split, seed=settings.seed, ranks=ranks)
    wanted = settings.steps or training.total_steps
    while training.total_steps < wanted:
        if "epochs" in settings.options:
            raise InputError(
                f"`steps` must be at most those of {method.recipe.epochs} epochs, {training.total_steps}; got {wanted}."
            )
        missing = -(-(wanted - training.total_steps) // training.steps_per_epoch)
        longer = replace(method.recipe, epochs=method.recipe.epochs + missing)
        method = replace(method, recipe=longer)
        training = method.begin(run.model(), split, seed=settings.seed, ranks=ranks)
    return method, training, wanted


def _description(
    run: Run, forget_set: ForgetSet, settings: UnlearnSettings, method: Method
) -> dict[str, Any]:
    """The table `[unlearning]` of the new run's config.toml."""
    own = {each.name: getattr(method, each.name) for each in fields(method) if each.name != "recipe"}
    return {
        "method": settings.method,
        "options": own,
        "recipe": asdict(method.recipe),
        "seed": settings.seed,
        "metrics": list(settings.metrics),
        "every": settings.every,
        "at": list(settings.at) or None,
        "sample": settings.sample,
        "parent": run.folder.digest(),
        "forget": forget_set.name,
        "forgotten": [*run.forgotten.tolist(), *forget_set.ids.tolist()],
    }


def _unlearn(
    training: Training,
    split: Split,
    context: Context,
    settings: UnlearnSettings,
    out: Path,
    total: int,
    until: Until,
    progress: Progress,
) -> list[dict[str, Any]]:
    watched = split if settings.sample is None else sampled(split, settings.sample, settings.seed)
    at = _evaluations(training, watched, settings, total)
    checkpoints = Checkpoints(out / "checkpoints")
    rows = checkpoints.restore(training)
    every = settings.checkpoint_every or training.steps_per_epoch

    def look() -> list[dict[str, Any]]:
        if not training.ranks.first or training.step not in at:
            return []
        when = {"step": training.step, "seed": settings.seed}
        found = measure(training.model, watched, settings.metrics, **when, context=context)
        return [asdict(row) for row in found]

    rows = rows or look()
    steps = training.steps()
    done = until(rows)
    while training.step < total and not done:
        next(steps)
        found = look()
        rows += found
        done = bool(found) and until(rows)
        if training.step % every == 0 and training.ranks.first:
            checkpoints.save(training, rows)
        progress(training.step, total)
    return rows


def _evaluations(training: Training, watched: Split, settings: UnlearnSettings, total: int) -> set[int]:
    if settings.at:
        return {0, *(step for step in settings.at if step <= total)}
    if settings.every is not None:
        return set(every_steps(total, settings.every).tolist())
    size = len(watched.train) + len(watched.test)
    batch = min(training.recipe.batch_size, len(training.examples))
    return set(affordable_steps(total, batch_size=batch, watched=size).tolist())


def _seal(
    out: Path,
    config: Mapping[str, Any],
    run: Run,
    training: Training,
    rows: list[dict[str, Any]],
    also: Also,
) -> None:
    if not all(bool(torch.isfinite(p).all()) for p in training.parameters.values()):
        raise NumericalError(
            f"The weights are no longer finite after step {training.step}. Try a smaller learning rate."
        )
    draft = Draft(out)
    draft.config(config)
    write_weights(draft, training.model)
    draft.rows("measurements", rows)
    files = ["config.toml", "weights.safetensors", "measurements.jsonl"]
    if run.poison is not None:
        write_poison(draft, run.poison)
        files.append("poison.safetensors")
    files += also(draft, training.model, rows)
    seal_in_place(out, "training", files)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / UNFINISHED).unlink(missing_ok=True)


def _retrain(
    run: Run,
    forget_set: ForgetSet,
    settings: UnlearnSettings,
    method: Method,
    out: Path,
    resume: bool,
    ranks: Ranks,
    progress: Progress,
) -> Run:
    if settings.steps is not None:
        raise InputError(
            "`steps` cannot be given with retrain, which trains to the end; use the option `epochs`."
        )
    oracle = oracle_settings(run, forget_set, seed=settings.seed)
    train_run(replace(oracle, recipe=method.recipe), out, resume=resume, ranks=ranks, progress=progress)
    return open_run(out)
