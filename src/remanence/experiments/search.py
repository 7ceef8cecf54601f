"""Which configuration to try next: a Gaussian process over those tried so far."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from remanence.tasks import derive_seed

_RANDOM = 6
"""Configurations drawn at random before the Gaussian process takes over."""


class Search:
    """Asks for configurations and is told their scores.

    What is asked for depends on the seed and on the scores so far alone, so an interrupted search that is run again
    asks for the same configurations.

    Args:
        ranges: name to lowest and highest value; searched on a logarithmic scale.
        seed: random seed of the search.
        first: the configuration to begin with.
    """

    def __init__(
        self, ranges: Mapping[str, tuple[float, float]], *, seed: int, first: Mapping[str, float]
    ) -> None:
        import optuna

        self._ranges, self._seed = ranges, seed
        with _quiet_optuna():
            self._study = optuna.create_study(direction="maximize")
            self._study.enqueue_trial(dict(first))

    def ask(self, count: int) -> list[tuple[int, dict[str, float]]]:
        """The next configurations, each with the number to report its score by."""
        from optuna.distributions import FloatDistribution
        from optuna.samplers import GPSampler

        space: Any = {name: FloatDistribution(*span, log=True) for name, span in self._ranges.items()}
        asked = []
        with _quiet_optuna():
            for _ in range(count):
                number = len(self._study.get_trials(deepcopy=False))
                seed = derive_seed(self._seed, "ask", number) % 2**32
                self._study.sampler = GPSampler(
                    seed=seed, n_startup_trials=_RANDOM, deterministic_objective=True
                )
                trial = self._study.ask(space)
                asked.append((trial.number, {name: float(trial.params[name]) for name in self._ranges}))
        return asked

    def tell(self, number: int, score: float) -> None:
        """Report the score of a configuration; higher is better."""
        with _quiet_optuna():
            self._study.tell(number, score)


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Silence Optuna's line per trial and its warnings about experimental features."""
    log = logging.getLogger("optuna")
    before = log.level
    log.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            log.setLevel(before)
