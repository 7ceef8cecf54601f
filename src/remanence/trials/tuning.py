"""Tune a method's hyperparameters on a random forget set, against oracles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from remanence.audit import metrics_named
from remanence.errors import InputError, UnknownNameError
from remanence.forgetting import random_set
from remanence.storage import SEAL, Draft, open_folder, seal_in_place
from remanence.storage.lock import exclusive
from remanence.training import Run
from remanence.training.run import UNFINISHED, claim
from remanence.trials.attempt import Arena
from remanence.trials.choice import Choice, Tried, enough, fastest_of_the_best, read_choice, write_choice
from remanence.trials.oracles import cached_oracle
from remanence.trials.search import Search
from remanence.trials.unlearned import split_to_unlearn
from remanence.trials.workers import workers
from remanence.types import ForgetSet
from remanence.unlearning import make_method, method_named

_ORACLE_SEED = 10_000
"""Oracles start from other initial weights and see other batches than the model they judge."""
_FILES = ("config.toml", "trials.jsonl", "levels.json", "choice.json")


@dataclass(frozen=True)
class TuneSettings:
    """What tuning is asked to do; written into its folder as config.toml.

    Args:
        method: to tune.
        options: hyperparameters held fixed.
        ranges: name to lowest and highest value, searched on a logarithmic scale; the method's own by default.
        trials: configurations to try.
        seeds: repetitions of each.
        oracles: models trained without the forget set, whose mean is aimed at.
        size: of the random forget set.
        metrics: what to compare with the oracles; forgetting and utility weigh the same in `("mia", "test")`.
        sample: measure on at most so many retain and test examples; on all when None.
        seed: of the search, the forget set and the unlearning.
        workers: trials at a time; what is asked for depends on it too.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    trials: int = 25
    seeds: int = 1
    oracles: int = 2
    size: int = 100
    metrics: tuple[str, ...] = ("mia", "test")
    sample: int | None = None
    seed: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        for metric in metrics_named(self.metrics):
            if metric.needs:
                raise InputError(
                    f"`{metric.name}` needs {metric.needs}; tuning compares shares such as mia and test."
                )
        for name in ("trials", "seeds", "oracles", "size", "workers"):
            if getattr(self, name) < 1:
                raise InputError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        object.__setattr__(self, "ranges", self._free())

    def _free(self) -> dict[str, tuple[float, float]]:
        """The ranges of all that is neither held fixed nor out of question."""
        known = method_named(self.method).SEARCH
        for name, (low, high) in self.ranges.items():
            if name not in known:
                raise UnknownNameError(f"hyperparameter of {self.method} to search", name, known)
            if not 0 < low < high:
                raise InputError(f"The range of {name} must rise from above 0; got {low:g} to {high:g}.")
        free = {k: v for k, v in {**known, **self.ranges}.items() if k not in self.options}
        if not free:
            raise InputError(f"Nothing is left to tune of {self.method}.")
        return free


@dataclass(frozen=True)
class Tuning:
    """What came of it: the choice, every trial, and what the oracles reached."""

    folder: Path
    choice: Choice
    tried: list[Tried]
    oracle: Mapping[str, float]

    @property
    def level(self) -> float:
        """The balance that counted as got there."""
        return enough(self.tried, self.choice.untouched)


Progress = Callable[[str, float, float], None]
"""(what is being done, how much of it is done, how much there is) -> None."""


def tune(
    run: Run,
    settings: TuneSettings,
    out: Path,
    *,
    forget_set: ForgetSet | None = None,
    resume: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Tuning:
    """Try configurations on a random forget set, choose one, and leave the trials and the choice in `out`.

    The balance of a trial is how near it comes to the oracles in forgetting and utility at once. Among the trials
    within 5 % of the best, the one that gets there in the fewest steps is chosen. Killed, it goes on with `resume`.

    Args:
        run: to unlearn from; not changed.
        settings: what to try.
        out: the folder to write.
        forget_set: to tune on; by default a random one.
        resume: go on with an unfinished tuning.
        progress: told how far it is.
    """
    if forget_set is None:
        forget_set = random_set(run.data()[0].ids, settings.size, settings.seed)
    split_to_unlearn(run, forget_set)
    make_method(settings.method, settings.options, run.settings.recipe)
    config = asdict(settings) | {"run": run.folder.digest(), "forget": forget_set.ids.tolist()}
    del config["workers"]  # so that it can go on with more of them, or fewer
    claim(config, out, resume, kind="tuning")
    if not (out / SEAL).exists():
        with exclusive(out / ".lock", f"Another process is tuning in {out}; wait for it."):
            arena = _arena(run, forget_set, settings)
            goal = _goal(run, forget_set, settings, arena, out / "oracles", progress)
            tried = _search(arena, settings, goal, out, progress)
            _seal(out, config, settings, arena, goal, tried)
    return read_tuning(out)


def read_tuning(path: Path) -> Tuning:
    """A finished tuning."""
    folder = open_folder(path, "tuning")
    folder.verify()
    tried = [
        Tried(**row | {"steps": tuple(row["steps"]), "balance": tuple(row["balance"])})
        for row in folder.rows("trials")
    ]
    return Tuning(path, read_choice(path / "choice.json"), tried, folder.document("levels"))


def _arena(run: Run, forget_set: ForgetSet, settings: TuneSettings) -> Arena:
    return Arena(
        run=run.folder.path,
        forget=forget_set.name,
        ids=tuple(forget_set.ids.tolist()),
        method=settings.method,
        options=dict(settings.options),
        metrics=settings.metrics,
        seeds=tuple(settings.seed + i for i in range(settings.seeds)),
        sample=settings.sample,
    )


def _goal(
    run: Run, forget_set: ForgetSet, settings: TuneSettings, arena: Arena, cache: Path, progress: Progress
) -> dict[str, float]:
    def told(i: int, done: int, total: int) -> None:
        progress("Training oracles", i + done / total, settings.oracles)

    oracles = [
        cached_oracle(run, forget_set, cache, seed=_ORACLE_SEED + i, progress=partial(told, i))
        for i in range(settings.oracles)
    ]
    return arena.levels(oracles)


def _search(
    arena: Arena, settings: TuneSettings, goal: Mapping[str, float], out: Path, progress: Progress
) -> list[Tried]:
    search = Search(out / "journal.log", settings.ranges, seed=settings.seed, first=_usual(arena, settings))
    with workers(settings.workers) as submit:
        while (done := len(search.tried())) < settings.trials:
            progress("Trying configurations", done, settings.trials)
            asked = search.ask(min(settings.workers, settings.trials - done))
            waiting = [(number, options, submit(arena.attempt, options, goal)) for number, options in asked]
            for number, options, outcome in waiting:
                search.tell(number, options, outcome())
        progress("Trying configurations", done, settings.trials)
    return search.tried()


def _usual(arena: Arena, settings: TuneSettings) -> dict[str, float]:
    """The configuration that the method has by default, to begin with."""
    method = make_method(settings.method, settings.options, arena.opened.settings.recipe)
    values = asdict(method.recipe) | {each.name: getattr(method, each.name) for each in fields(method)}
    return {name: float(np.clip(values[name], *span)) for name, span in settings.ranges.items()}


def _seal(
    out: Path,
    config: Mapping[str, Any],
    settings: TuneSettings,
    arena: Arena,
    goal: Mapping[str, float],
    tried: list[Tried],
) -> None:
    before = arena.levels([arena.opened])
    untouched = 1 - float(np.mean([abs(before[name] - goal[name]) for name in goal]))
    chosen, steps = fastest_of_the_best(tried, untouched)
    draft = Draft(out)
    draft.config(config)
    draft.rows("trials", map(asdict, tried))
    draft.document("levels", dict(goal))
    choice = Choice(
        method=settings.method,
        options={**settings.options, **chosen.options},
        balance=chosen.best,
        steps=steps,
        untouched=untouched,
        trials=len(tried),
        run=arena.opened.folder.digest(),
        forget=arena.forget,
        seed=settings.seed,
    )
    write_choice(out / "choice.json", choice)
    seal_in_place(out, "tuning", _FILES)
    (out / UNFINISHED).unlink(missing_ok=True)
