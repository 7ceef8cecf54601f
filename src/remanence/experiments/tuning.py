"""Tune a method's hyperparameters on a random forget set, against oracles."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from remanence.audit import metrics_named
from remanence.data import Split
from remanence.errors import InputError, UnknownNameError
from remanence.experiments.choice import (
    MARGIN,
    Tried,
    TunedChoice,
    enough,
    fastest_of_the_best,
    read_choice,
    tried,
    write_choice,
)
from remanence.experiments.measuring import measure
from remanence.experiments.oracles import OracleTraining, cached_oracle, oracle_seed
from remanence.experiments.schedule import affordable_steps, sampled
from remanence.experiments.search import Search
from remanence.experiments.unlearn import split_to_unlearn
from remanence.experiments.unlearning_loop import Evaluations, read_trajectory, unlearn_and_measure
from remanence.forgetting import random_set
from remanence.stages import Read, Stage, Store, Tally, run_stages
from remanence.stages.executors import kept_open
from remanence.storage import SEAL, Draft, open_folder, seal_in_place
from remanence.storage.lock import exclusive
from remanence.storage.parsing import parse_toml
from remanence.storage.unfinished import UNFINISHED, claim
from remanence.training import Run, RunReference
from remanence.types import ForgetSet, as_ids
from remanence.unlearning import make_method, method_named

_FILES = ("config.toml", "trials.jsonl", "levels.json", "choice.json")
_EVALUATIONS = 24


@dataclass(frozen=True)
class TuneSettings:
    """How to tune; written into the tuning's folder as config.toml.

    Args:
        method: the method to tune.
        options: hyperparameters held fixed.
        ranges: name to lowest and highest value, searched on a logarithmic scale; the method's own by default.
        trials: number of configurations to try.
        seeds: repetitions of each.
        oracles: models trained without the forget set, whose mean is the target.
        size: size of the random forget set.
        metrics: what to compare with the oracles; forgetting and utility weigh the same by default.
        sample: measure on at most this many retain and test examples; on all when None.
        seed: random seed of the search, the forget set and the unlearning.
        workers: configurations tried at a time; the search depends on it too.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    trials: int = 25
    seeds: int = 1
    oracles: int = 2
    size: int = 100
    metrics: tuple[str, ...] = ("mia_confidence", "test")
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
        object.__setattr__(self, "ranges", self._free_ranges())

    def _free_ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges of everything that is not held fixed."""
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
    """A finished tuning: the choice, every configuration tried, and the oracles' levels."""

    folder: Path
    choice: TunedChoice
    tried: list[Tried]
    oracle: Mapping[str, float]

    @property
    def level(self) -> float:
        """The balance that a configuration had to reach."""
        return enough(self.tried, self.choice.untouched)

    @property
    def informative(self) -> bool:
        """Whether the model had something to unlearn; otherwise only the best balance decides."""
        return self.choice.untouched < (1 - MARGIN) * self.level

    def is_choice(self, tried: Tried) -> bool:
        """Whether this is the chosen configuration."""
        return all(self.choice.options[name] == value for name, value in tried.options.items())

    def document(self) -> dict[str, Any]:
        """The tuning as JSON values."""
        rows = [asdict(tried) | {"best": tried.best} for tried in self.tried]
        return {"choice": asdict(self.choice), "oracle": dict(self.oracle), "trials": rows}


@dataclass(frozen=True, eq=False, kw_only=True)
class Attempt(Stage):
    """One configuration of a method, tried with one seed."""

    kind = "attempt"

    run: RunReference
    forget: str
    ids: tuple[int | str, ...]
    method: str
    options: Mapping[str, Any]
    metrics: tuple[str, ...]
    seed: int
    watched_seed: int
    sample: int | None

    def compute(self, draft: Draft, read: Read) -> None:
        """Unlearn with this configuration; write the measurements and whether it diverged."""
        run = self.run.open()
        split = run.split(ForgetSet(self.forget, as_ids(self.ids)))
        watched = watched_split(split, self.sample, self.watched_seed)
        method = make_method(self.method, self.options, run.settings.recipe)
        training = method.begin(run.model(), split, seed=self.seed)
        at = affordable_steps(
            training.total_steps,
            batch_size=min(method.recipe.batch_size, len(training.examples)),
            watched=len(watched.train) + len(watched.test),
            most=_EVALUATIONS,
        )
        evaluations = Evaluations(watched, self.metrics, set(at.tolist()), self.seed)
        trajectory = unlearn_and_measure(training, evaluations)
        draft.rows("measurements", map(asdict, trajectory.rows))
        diverged = trajectory.diverged
        draft.document("attempt", {"diverged": None if diverged is None else str(diverged)})


def watched_split(split: Split, sample: int | None, seed: int) -> Split:
    """The data to measure on: the whole split, or a sample of its retain and test examples."""
    return split if sample is None else sampled(split, sample, seed)


Progress = Callable[[str, float, float], None]
"""(what is being done, how much of it is done, the total) -> None."""


def tune(
    run: Run,
    settings: TuneSettings,
    out: Path,
    *,
    forget_set: ForgetSet | None = None,
    resume: bool = False,
    executor: str = "process",
    address: str | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Tuning:
    """Try configurations on a random forget set, choose one, and leave the trials and the choice in `out`.

    The balance of a configuration says how close it comes to the oracles in forgetting and utility at once. Among the
    configurations within 5 % of the best, the one that reaches that level in the fewest steps is chosen. If the tuning
    is interrupted, `resume` continues it.

    Args:
        run: the run to unlearn from; not changed.
        settings: what to try.
        out: the folder to write.
        forget_set: the set to tune on; by default a random one.
        resume: continue an unfinished tuning.
        executor: `process` for processes of this machine, or `ray`.
        address: address of a running Ray cluster; by default Ray is started on this machine.
        progress: called as it goes.
    """
    if forget_set is None:
        forget_set = random_set(run.data()[0].ids, settings.size, settings.seed)
    split_to_unlearn(run, forget_set)
    workers = run.workers(settings.workers)  # refuses a folder that is not trusted
    make_method(settings.method, settings.options, run.settings.recipe)
    config = asdict(settings) | {"run": run.folder.digest(), "forget": forget_set.ids.tolist()}
    del config["workers"]  # a tuning can be resumed with another number of them
    config["batch"] = _batch(out, settings, resume)
    claim(config, out, resume, kind="tuning")
    if not (out / SEAL).exists():
        with (
            exclusive(out / ".lock", f"Another process is tuning in {out}; wait for it."),
            kept_open(executor, workers=workers, address=address),
        ):
            compute = partial(run_stages, workers=workers, executor=executor, address=address)
            tuner = _Tuner(run, forget_set, settings, out, config["batch"], compute, progress)
            _seal(out, config, tuner, tuner.search())
    return read_tuning(out)


def read_tuning(path: Path) -> Tuning:
    """A finished tuning."""
    folder = open_folder(path, "tuning")
    folder.verify()
    configurations = [
        Tried(**row | {name: tuple(row[name]) for name in ("steps", "balance", "distances")})
        for row in folder.rows("trials")
    ]
    return Tuning(path, read_choice(path / "choice.json"), configurations, folder.document("levels"))


def _batch(out: Path, settings: TuneSettings, resume: bool) -> int:
    """Configurations asked for at a time: as many as workers when the tuning began."""
    for name in (UNFINISHED, "config.toml") if resume else ():
        if (out / name).is_file():
            return int(parse_toml((out / name).read_bytes(), out / name).get("batch", settings.workers))
    return settings.workers


class _Tuner:
    """One tuning while it runs."""

    def __init__(
        self,
        run: Run,
        forget_set: ForgetSet,
        settings: TuneSettings,
        out: Path,
        batch: int,
        compute: Callable[..., Tally],
        progress: Progress,
    ) -> None:
        self.run, self.forget_set, self.settings = run, forget_set, settings
        self._batch, self._compute, self._progress = batch, compute, progress
        self._watched = watched_split(run.split(forget_set), settings.sample, settings.seed)
        self._store = Store(out / "stages")
        self._store.sweep()
        self.goal = self.levels(*self._oracles(out / "oracles"))

    def levels(self, *runs: Run) -> dict[str, float]:
        """The mean of each metric over some runs."""
        rows = [
            row
            for run in runs
            for row in measure(
                run.model(), self._watched, self.settings.metrics, step=0, seed=self.settings.seed
            )
        ]
        return {
            name: float(np.mean([row.value for row in rows if row.metric == name]))
            for name in self.settings.metrics
        }

    def search(self) -> list[Tried]:
        """Ask, try and tell until all configurations are tried."""
        settings = self.settings
        search = Search(settings.ranges, seed=settings.seed, first=self._defaults())
        done: list[Tried] = []
        while len(done) < settings.trials:
            self._progress("Trying configurations", len(done), settings.trials)
            asked = search.ask(min(self._batch, settings.trials - len(done)))
            attempts = [self._attempts(options) for _, options in asked]
            self._compute([stage for stages in attempts for stage in stages], self._store)
            for (number, options), stages in zip(asked, attempts, strict=True):
                trajectories = [
                    (read_trajectory(self._store.get(stage), "attempt"), self.goal) for stage in stages
                ]
                done.append(tried(number, options, trajectories))
                search.tell(number, done[-1].best)
        self._progress("Trying configurations", len(done), settings.trials)
        return done

    def _oracles(self, cache: Path) -> list[Run]:
        seeds = [oracle_seed(self.settings.seed, index) for index in range(self.settings.oracles)]
        ids = tuple(self.forget_set.ids.tolist())
        stages = [
            OracleTraining(run=self.run.reference, ids=ids, seed=seed, cache=str(cache.resolve()))
            for seed in seeds
        ]
        done = count(1)
        self._progress("Training oracles", 0, len(seeds))
        self._compute(
            stages,
            self._store,
            on_done=lambda stage: self._progress("Training oracles", next(done), len(seeds)),
        )
        return [cached_oracle(self.run, self.forget_set, cache, seed=seed) for seed in seeds]

    def _attempts(self, options: Mapping[str, float]) -> list[Attempt]:
        settings = self.settings
        return [
            Attempt(
                run=self.run.reference,
                forget=self.forget_set.name,
                ids=tuple(self.forget_set.ids.tolist()),
                method=settings.method,
                options={**settings.options, **options},
                metrics=settings.metrics,
                seed=settings.seed + repetition,
                watched_seed=settings.seed,
                sample=settings.sample,
            )
            for repetition in range(settings.seeds)
        ]

    def _defaults(self) -> dict[str, float]:
        """The configuration that the method has by default, to begin with."""
        settings = self.settings
        method = make_method(settings.method, settings.options, self.run.settings.recipe)
        values = asdict(method.recipe) | {f.name: getattr(method, f.name) for f in fields(method)}
        return {name: float(np.clip(values[name], *span)) for name, span in settings.ranges.items()}


def _seal(out: Path, config: Mapping[str, Any], tuner: _Tuner, configurations: list[Tried]) -> None:
    before, settings = tuner.levels(tuner.run), tuner.settings
    untouched = 1 - float(np.mean([abs(before[name] - tuner.goal[name]) for name in tuner.goal]))
    chosen, steps = fastest_of_the_best(configurations, untouched)
    draft = Draft(out)
    draft.config(config)
    draft.rows("trials", map(asdict, configurations))
    draft.document("levels", tuner.goal)
    choice = TunedChoice(
        method=settings.method,
        options={**settings.options, **chosen.options},
        balance=chosen.best,
        steps=steps,
        untouched=untouched,
        trials=len(configurations),
        run=tuner.run.folder.digest(),
        forget=tuner.forget_set.name,
        seed=settings.seed,
    )
    write_choice(out / "choice.json", choice)
    seal_in_place(out, "tuning", _FILES)
    shutil.rmtree(out / "stages", ignore_errors=True)
    (out / UNFINISHED).unlink(missing_ok=True)
