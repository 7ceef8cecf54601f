"""Unlearn a forget set from a run, into a new run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from remanence.audit import Context, metrics_named
from remanence.data import Split
from remanence.errors import DataError, InputError, NumericalError
from remanence.experiments.measuring import NO_CONTEXT
from remanence.experiments.oracles import oracle_settings
from remanence.experiments.schedule import affordable_steps, every_steps, half_of, sampled
from remanence.experiments.unlearning_loop import Evaluations, Until, unlearn_and_measure
from remanence.storage import SEAL, Draft, open_folder, seal_in_place
from remanence.storage.lock import exclusive
from remanence.storage.unfinished import UNFINISHED, claim, reclaim
from remanence.tasks.poison import write_poison
from remanence.training import SINGLE_PROCESS, Checkpoints, Ranks, Run, Training, open_run, write_weights
from remanence.training.train_run import Progress, train_run
from remanence.training.trust import trust_like
from remanence.types import ForgetSet, Measurement
from remanence.unlearning import Method, make_method

DEFAULT_METRICS = ("ua", "ra", "test", "mia_confidence")
_LENGTH = (
    "poison",
    *(f"unlearning.{name}" for name in ("steps", "budget", "at", "recipe.epochs", "criterion.not_before")),
)
"""Settings that depend on the number of steps, or on whether the run is finished."""
_PRIVATE = ("canaries", *(f"unlearning.{name}" for name in ("forget", "forgotten", "file_sha256")))


@dataclass(frozen=True)
class UnlearnSettings:
    """How to unlearn.

    Args:
        method: name of the method.
        options: its hyperparameters, as `make_method` takes them.
        steps: stop after this many; by default the method's whole length. If the method would end sooner and its
            `epochs` are not given, it gets more of them.
        seed: random seed of the unlearning.
        metrics: what to measure on the way.
        every: steps between measurements; by default densely at first, then sparsely, at no more than training costs.
        at: the steps to measure after, instead.
        sample: measure on at most this many retain and test examples; on all when None.
        half: measure on this half of the retain and test examples only (0 or 1, see `half_of`); on all when None.
        checkpoint_every: steps between checkpoints of the state; one epoch when 0.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    seed: int = 0
    metrics: tuple[str, ...] = DEFAULT_METRICS
    every: int | None = None
    at: tuple[int, ...] = ()
    sample: int | None = None
    half: int | None = None
    checkpoint_every: int = 0

    def __post_init__(self) -> None:
        metrics_named(self.metrics)
        for name in ("steps", "every", "sample"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"`{name}` must be at least 1; got {value}.")


@dataclass(frozen=True, eq=False)
class Unlearned:
    """An unlearned model that is not sealed yet.

    Args:
        model: with its new weights.
        rows: what was measured on the way.
        steps: how many were taken.
        config: the settings of the new run.
    """

    model: nn.Module
    rows: list[Measurement]
    steps: int
    config: dict[str, Any]


def unlearn_run(
    run: Run,
    forget_set: ForgetSet,
    settings: UnlearnSettings,
    out: Path,
    *,
    resume: bool = False,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Unlearn a forget set from a run and leave a sealed run in `out`, with what was measured on the way.

    If it is interrupted, `resume` continues from the last checkpoint and ends with the same bits. `retrain` trains an
    oracle, just as training without the forget set would.

    Args:
        run: the run to unlearn from.
        forget_set: the examples to unlearn.
        settings: how.
        out: folder of the new run.
        resume: continue an unfinished one.
        ranks: the processes that share the work.
        progress: called with the steps taken and the total.
    """
    if settings.method == "retrain":
        return _retrain(run, forget_set, settings, out, resume, ranks, progress)
    with unlearn_into(
        out, run, forget_set, settings, resume=resume, ranks=ranks, progress=progress
    ) as unlearned:
        if unlearned is not None and ranks.first:
            seal_in_place(out, "training", write_unlearned(Draft(out), run, unlearned))
            trust_like(open_folder(out, "training"), run.settings.code, run.folder)
    return open_run(out, task=run.given_task, device=run.settings.device)


@contextmanager
def unlearn_into(
    out: Path,
    run: Run,
    forget_set: ForgetSet,
    settings: UnlearnSettings,
    *,
    resume: bool = False,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = lambda done, total: None,
    until: Until = lambda rows: False,
    facts: Mapping[str, Any] | None = None,
    longer: bool = False,
    keep_checkpoints: bool = False,
    context: Context = NO_CONTEXT,
) -> Iterator[Unlearned | None]:
    """Unlearn in a folder, under its lock; the block of the `with` statement writes and seals the new run.

    Gives None when the folder was sealed already.

    Args:
        out: folder of the new run.
        run: the run to unlearn from.
        forget_set: the examples to unlearn.
        settings: how.
        resume: continue an unfinished one.
        ranks: the processes that share the work.
        progress: called with the steps taken and the total.
        until: stop early when this holds for the measurements so far; on a single process.
        facts: further entries of the run's table `[unlearning]`; a run is resumed with the same ones only.
        longer: go on for more steps than the run in `out` was begun or sealed with; its seal is removed.
        keep_checkpoints: leave the last checkpoints in `out`, so that `longer` can continue from them.
        context: what is needed to measure beyond the data of the run.
    """
    split = split_to_unlearn(run, forget_set)
    _check_metrics(settings, run, forget_set)
    method, training, total = begin_unlearning(run, split, settings, ranks=ranks)
    description = describe(run, forget_set, settings, method) | {"steps": total} | dict(facts or {})
    config = asdict(run.settings) | {"unlearning": description}
    if longer and ranks.first:
        reclaim(config, out, ignore=(*_LENGTH, *private_settings(out)))
    fresh = ranks.first and claim(config, out, resume)
    ranks.wait()
    if (out / SEAL).exists():
        yield None
        return
    with exclusive(out / f".lock-{ranks.rank}", f"Another process is unlearning in {out}; wait for it."):
        try:
            rows = _unlearn(training, split, run, settings, out, total, until, progress, context)
        except InputError:
            if fresh:
                (out / UNFINISHED).unlink(
                    missing_ok=True
                )  # a run that cannot begin must not block the folder
            raise
        yield Unlearned(training.model, rows, training.step, config)
        if ranks.first:
            if not keep_checkpoints:
                shutil.rmtree(out / "checkpoints", ignore_errors=True)
            (out / UNFINISHED).unlink(missing_ok=True)
    ranks.wait()


def write_unlearned(draft: Draft, run: Run, unlearned: Unlearned) -> list[str]:
    """Settings, weights, measurements and poison of a new run; returns the names of the files."""
    draft.config(unlearned.config)
    write_weights(draft, unlearned.model)
    draft.rows("measurements", map(asdict, unlearned.rows))
    files = ["config.toml", "weights.safetensors", "measurements.jsonl"]
    if run.poison is not None:
        stays = np.isin(run.poison.ids, unlearned.config["poison"])
        write_poison(draft, run.poison.only(stays))
        files.append("poison.safetensors")
    return files


def private_settings(out: Path) -> tuple[str, ...]:
    """The settings that a run sealed by a deletion request keeps in its private ledger; the request compares them."""
    return _PRIVATE if (out / SEAL).exists() else ()


def split_to_unlearn(run: Run, forget_set: ForgetSet) -> Split:
    """The run's data with this forget set; examples that the run is already without are refused."""
    for gone, reason in (
        (run.forgotten, "already unlearned from"),
        (run.never_seen, "never part of training in"),
    ):
        overlap = np.intersect1d(forget_set.ids, gone)
        if len(overlap):
            raise DataError(
                f"Forget set {forget_set.name!r} must name examples that {run.folder.path} still holds; "
                f"{len(overlap)} of its {len(forget_set.ids)} were {reason} it, the first is {overlap[0]}."
            )
    return run.split(forget_set)


def begin_unlearning(
    run: Run, split: Split, settings: UnlearnSettings, *, ranks: Ranks = SINGLE_PROCESS
) -> tuple[Method, Training, int]:
    """The method's training before its first step, long enough for the steps asked for, and those steps."""
    method = make_method(settings.method, settings.options, run.settings.recipe)
    training = method.begin(run.model(), split, seed=settings.seed, ranks=ranks)
    wanted = settings.steps or training.total_steps
    while training.total_steps < wanted:
        if "epochs" in settings.options:
            raise InputError(
                f"`steps` must be at most those of {method.recipe.epochs} epochs, {training.total_steps}; got {wanted}."
            )
        missing = -(-(wanted - training.total_steps) // training.steps_per_epoch)
        method = replace(method, recipe=replace(method.recipe, epochs=method.recipe.epochs + missing))
        training = method.begin(run.model(), split, seed=settings.seed, ranks=ranks)
    return method, training, wanted


def describe(run: Run, forget_set: ForgetSet, settings: UnlearnSettings, method: Method) -> dict[str, Any]:
    """The table `[unlearning]` of the new run's config.toml."""
    own = {f.name: getattr(method, f.name) for f in fields(method) if f.name != "recipe"}
    return {
        "method": settings.method,
        "options": own,
        "recipe": asdict(method.recipe),
        "seed": settings.seed,
        "metrics": list(settings.metrics),
        "every": settings.every,
        "at": list(settings.at) or None,
        "sample": settings.sample,
        "half": settings.half,
        "parent": run.folder.digest(),
        "forget": forget_set.name,
        "forgotten": [*run.forgotten.tolist(), *forget_set.ids.tolist()],
    }


def _check_metrics(settings: UnlearnSettings, run: Run, forget_set: ForgetSet) -> None:
    """Refuse a metric that needs what does not exist while unlearning."""
    poisoned = run.poison is not None and bool(np.isin(forget_set.ids, run.poison.ids).any())
    for metric in metrics_named(settings.metrics):
        if metric.needs not in (None, "poison"):
            raise InputError(
                f"`{metric.name}` needs {metric.needs} and cannot be measured while unlearning; use `remanence audit` "
                "on the unlearned run."
            )
        if metric.needs == "poison" and not poisoned:
            raise InputError(
                f"`{metric.name}` needs a run whose forget set was poisoned; "
                f"{run.folder.path} was not poisoned with any of {forget_set.name!r}."
            )


def _unlearn(
    training: Training,
    split: Split,
    run: Run,
    settings: UnlearnSettings,
    out: Path,
    total: int,
    until: Until,
    progress: Progress,
    context: Context,
) -> list[Measurement]:
    watched = split if settings.half is None else half_of(split, settings.half)
    watched = watched if settings.sample is None else sampled(watched, settings.sample, settings.seed)
    evaluations = Evaluations(
        watched,
        settings.metrics,
        evaluation_steps(training, watched, settings, total),
        settings.seed,
        replace(context, poison=run.poison, clean=run.clean[0]),
    )
    trajectory = unlearn_and_measure(
        training,
        evaluations,
        steps=total,
        until=until,
        checkpoints=Checkpoints(out / "checkpoints"),
        checkpoint_every=settings.checkpoint_every,
        progress=progress,
    )
    if trajectory.diverged is not None:
        raise trajectory.diverged
    if not all(bool(torch.isfinite(p).all()) for p in training.parameters.values()):
        raise NumericalError(
            f"The weights are no longer finite after step {training.step}. Try a smaller learning rate."
        )
    return trajectory.rows


def evaluation_steps(training: Training, watched: Split, settings: UnlearnSettings, total: int) -> set[int]:
    """The steps to measure after."""
    if settings.at:
        return {0, *(step for step in settings.at if step <= total)}
    if settings.every is not None:
        return set(every_steps(total, settings.every).tolist())
    size = len(watched.train) + len(watched.test)
    batch = min(training.recipe.batch_size, len(training.examples))
    return set(affordable_steps(total, batch_size=batch, watched=size).tolist())


def _retrain(
    run: Run,
    forget_set: ForgetSet,
    settings: UnlearnSettings,
    out: Path,
    resume: bool,
    ranks: Ranks,
    progress: Progress,
) -> Run:
    split_to_unlearn(run, forget_set)
    method = make_method(settings.method, settings.options, run.settings.recipe)
    if settings.steps is not None:
        raise InputError(
            "`steps` cannot be given with retrain, which trains to the end; use the option `epochs`."
        )
    oracle = oracle_settings(run, forget_set, seed=settings.seed)
    settings_of_oracle = replace(oracle, recipe=method.recipe)
    train_run(settings_of_oracle, out, resume=resume, ranks=ranks, progress=progress, task=run.given_task)
    return open_run(out, task=run.given_task, device=run.settings.device)
