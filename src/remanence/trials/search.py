"""Ask for configurations and tell how they went: a Gaussian process over a journal that survives a kill."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remanence.training.randomness import derive_seed
from remanence.trials.choice import Tried

if TYPE_CHECKING:
    import optuna

_NAME = "tuning"
_RANDOM = 6
"""So many configurations are drawn by chance before the Gaussian process takes over."""


class Search:
    """The configurations tried so far, on disk, and which to try next.

    What is asked for depends on the seed and on the finished trials alone, so a search that was killed and goes on
    asks for the same configurations as one that was never disturbed. One process at a time may use the journal.

    Args:
        journal: the file.
        ranges: name to lowest and highest value; searched on a logarithmic scale.
        seed: of the search.
        first: a configuration to begin with.
    """

    def __init__(
        self,
        journal: Path,
        ranges: Mapping[str, tuple[float, float]],
        *,
        seed: int,
        first: Mapping[str, float],
    ) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._ranges, self._seed = ranges, seed
        _mend(journal)
        with _quietly():
            self._storage = JournalStorage(JournalFileBackend(str(journal)))
            study = optuna.create_study(
                storage=self._storage, study_name=_NAME, direction="maximize", load_if_exists=True
            )
            if not study.get_trials(deepcopy=False):
                study.enqueue_trial(dict(first))
            self._give_up_the_dead(study)

    def ask(self, count: int) -> list[tuple[int, dict[str, float]]]:
        """The next configurations, each with the number to tell its outcome by."""
        from optuna.distributions import FloatDistribution
        from optuna.samplers import GPSampler

        space: Any = {name: FloatDistribution(*span, log=True) for name, span in self._ranges.items()}
        asked = []
        with _quietly():
            for i in range(count):
                seed = derive_seed(self._seed, "ask", len(self.tried()) + i) % 2**32
                trial = self._study(
                    GPSampler(seed=seed, n_startup_trials=_RANDOM, deterministic_objective=True)
                ).ask(space)
                asked.append((trial.number, {name: float(trial.params[name]) for name in self._ranges}))
        return asked

    def tell(self, number: int, options: Mapping[str, float], outcome: Mapping[str, Any]) -> None:
        """How it went: `steps`, `balance` and `diverged` of a `Tried`."""
        with _quietly():
            study = self._study()
            trial = next(each for each in study.get_trials(deepcopy=False) if each.number == number)
            self._storage.set_trial_user_attr(trial._trial_id, "outcome", dict(outcome))
            study.tell(number, _tried(number, options, outcome).best)

    def tried(self) -> list[Tried]:
        """All finished trials, numbered in the order in which they were asked for."""
        from optuna.trial import TrialState

        done = self._study().get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [
            _tried(i, {name: each.params[name] for name in self._ranges}, each.user_attrs["outcome"])
            for i, each in enumerate(done)
        ]

    def _study(self, sampler: optuna.samplers.BaseSampler | None = None) -> optuna.Study:
        import optuna

        return optuna.load_study(study_name=_NAME, storage=self._storage, sampler=sampler)

    def _give_up_the_dead(self, study: optuna.Study) -> None:
        """Trials that a killed process left behind are asked for once more."""
        from optuna.trial import TrialState

        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)
            if self._ranges.keys() <= trial.params.keys():
                study.enqueue_trial(trial.params)


def _tried(number: int, options: Mapping[str, float], outcome: Mapping[str, Any]) -> Tried:
    steps: Sequence[int] = outcome["steps"]
    return Tried(number, dict(options), tuple(steps), tuple(outcome["balance"]), bool(outcome["diverged"]))


def _mend(journal: Path) -> None:
    """Remove what a kill in the middle of a write leaves: half a line, a lock."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    for lock in journal.parent.glob(f"{journal.name}.lock*"):
        lock.unlink(missing_ok=True)
    if journal.exists():
        content = journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            journal.write_bytes(whole)


@contextmanager
def _quietly() -> Iterator[None]:
    """Optuna tells of every trial and warns of features it may yet change; neither is for our users."""
    log = logging.getLogger("optuna")
    before = log.level
    log.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            log.setLevel(before)
