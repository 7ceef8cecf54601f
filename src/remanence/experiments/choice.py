"""The rule that chooses a configuration, and the file that holds the choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from remanence._version import __version__
from remanence.errors import InputError, NumericalError
from remanence.experiments.durations import STAY
from remanence.experiments.measuring import curve
from remanence.experiments.unlearning_loop import Trajectory
from remanence.storage import atomic
from remanence.storage.parsing import parse_json
from remanence.storage.table_reading import read_record
from remanence.unlearning import full_names

MARGIN = 0.05
"""A balance within this share of the best counts as equally good."""
SIGNIFICANCE = 0.05
"""Level of the paired one-sided t test over seeds; a larger distance that fails it counts as equal too."""
_KIND, _FORMAT = "tuned choice", 1


@dataclass(frozen=True)
class Tried:
    """One configuration and its results.

    Args:
        number: counts the configurations from 0.
        options: the hyperparameters tried.
        steps: when it was measured, increasing, after unlearning began.
        balance: at each of these, 1 minus the mean absolute distance to the oracles over the metrics, averaged over
            seeds. The distance is two-sided: a damaged model, or one that errs more than the oracle, loses too.
        distances: with each seed, 1 minus the balance on average over the run. Averaging over the run rewards
            reaching the oracles early.
        diverged: the loss stopped being finite with some seed; then there is no balance.
    """

    number: int
    options: Mapping[str, float]
    steps: tuple[int, ...] = ()
    balance: tuple[float, ...] = ()
    distances: tuple[float, ...] = ()
    diverged: bool = False

    @property
    def distance(self) -> float:
        """The mean distance over seeds."""
        return float(np.mean(self.distances)) if self.distances else math.inf

    @property
    def best(self) -> float:
        """The highest balance that held for two evaluations in a row; 0 when it diverged."""
        held = self._held()
        return float(held.max()) if len(held) else 0.0

    def steps_to(self, level: float) -> int | None:
        """The first step from which the balance stays at `level` or above for two evaluations."""
        reached = np.flatnonzero(self._held() >= level)
        return self.steps[reached[0]] if len(reached) else None

    def _held(self) -> NDArray[np.float64]:
        values = np.asarray(self.balance, dtype=np.float64)
        if len(values) < STAY:
            return values
        windows = np.lib.stride_tricks.sliding_window_view(values, STAY)
        return np.asarray(windows.min(axis=1))


@dataclass(frozen=True)
class TunedChoice:
    """The result of tuning, which `remanence unlearn --tuned` reads.

    Args:
        method: the method that was tuned.
        options: the chosen configuration, with what was held fixed.
        balance: the best balance it reached.
        steps: the steps after which it came within 5 % of the best of all.
        untouched: the balance before any unlearning; within 5 % of the best, the forget set says little.
        trials: number of configurations tried.
        run: digest of the run it was tuned on.
        forget: name of the forget set it was tuned on.
        seed: random seed of the tuning.
    """

    method: str
    options: Mapping[str, Any]
    balance: float
    steps: int
    untouched: float
    trials: int
    run: str
    forget: str
    seed: int


def tried(
    number: int,
    options: Mapping[str, float],
    trajectories: Sequence[tuple[Trajectory, Mapping[str, float]]],
) -> Tried:
    """The results of a configuration, from its trajectory with each seed and the oracles' levels to compare with."""
    if any(trajectory.diverged is not None for trajectory, _ in trajectories):
        return Tried(number, dict(options), diverged=True)
    # step 0 is the model before unlearning, the same for every configuration
    balances = np.array([_balance(trajectory, goal)[1:] for trajectory, goal in trajectories])
    steps = curve(trajectories[0][0].rows, next(iter(trajectories[0][1])))[0][1:]
    return Tried(
        number,
        dict(options),
        tuple(steps),
        tuple(balances.mean(axis=0).tolist()),
        tuple((1 - balances.mean(axis=1)).tolist()),
    )


def _balance(trajectory: Trajectory, goal: Mapping[str, float]) -> NDArray[np.float64]:
    """At each evaluation, 1 minus the mean absolute distance of the metrics to their goal."""
    gaps = [np.abs(np.asarray(curve(trajectory.rows, metric)[1]) - goal[metric]) for metric in goal]
    balance: NDArray[np.float64] = 1.0 - np.mean(gaps, axis=0)
    return balance


def enough(tried: Sequence[Tried], untouched: float) -> float:
    """The balance to reach: within 5 % of the best, and above what it was before unlearning.

    If the model was within 5 % of the best before, steps say nothing, and only the best itself counts.
    """
    best = max((configuration.best for configuration in tried), default=0.0)
    level = (1 - MARGIN) * best
    return level if level > untouched else best


def fastest_of_the_best(tried: Sequence[Tried], untouched: float) -> tuple[Tried, int]:
    """Of the configurations with enough balance, the one that reaches it in the fewest steps, and those steps.

    Among equally fast ones the better is taken, then the earlier.
    """
    level = enough(tried, untouched)
    if level == 0:
        raise NumericalError("Every configuration diverged; search smaller learning rates.")
    able = [(entry, steps) for entry in tried if (steps := entry.steps_to(level)) is not None]
    return min(able, key=lambda pair: (pair[1], -pair[0].best, pair[0].number))


def gentlest_of_the_best(tried: Sequence[Tried]) -> Tried:
    """The smallest learning rate that is not clearly worse than the best.

    The best has the smallest distance to the oracles on average over seeds. Another is clearly worse when its distance
    is more than 5 % larger and the difference, paired by seed, is significant. Between equally good rates chance would
    decide, and so would a rounding error; the smallest disturbs the model least.
    """
    able = [entry for entry in tried if not entry.diverged]
    if not able:
        rates = [entry.options["learning_rate"] for entry in tried]
        raise NumericalError(f"Every learning rate of {rates} diverged; try smaller ones.")
    best = min(able, key=lambda entry: entry.distance)
    equal = [entry for entry in able if not _clearly_worse(entry, best)]
    return min(equal, key=lambda entry: entry.options["learning_rate"])


def _clearly_worse(entry: Tried, best: Tried) -> bool:
    if entry.distance <= (1 + MARGIN) * best.distance:
        return False
    differences = np.subtract(entry.distances, best.distances)
    if len(differences) < 2 or np.ptp(differences) == 0:
        return True
    return bool(ttest_1samp(differences, 0.0, alternative="greater").pvalue < SIGNIFICANCE)


def write_choice(path: Path, choice: TunedChoice) -> None:
    """Write choice.json."""
    head = {"remanence": _KIND, "format": _FORMAT, "version": __version__}
    atomic.write_json(path, head | asdict(choice))


def read_choice(path: Path) -> TunedChoice:
    """Read the file that `remanence tune` wrote; anything else is refused."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; `remanence tune` writes choice.json.")
    document = parse_json(path.read_bytes(), path)
    if not isinstance(document, dict) or document.get("remanence") != _KIND:
        raise InputError(f"{path} is not a choice made by `remanence tune` (its choice.json).")
    if document.get("format") != _FORMAT:
        raise InputError(
            f"{path} was made by Remanence {str(document.get('version'))[:20]} in format "
            f"{str(document.get('format'))[:20]}; this is version {__version__}, which reads format {_FORMAT}."
        )
    values = {key: value for key, value in document.items() if key not in ("remanence", "format", "version")}
    return read_record(TunedChoice, values, path)


def tuned_method(
    method: str | None, options: Mapping[str, Any], tuned: Path | None = None, *, default: str | None = None
) -> tuple[str, dict[str, Any]]:
    """The method and its options, from those given and from a tuned choice; given options take precedence.

    Args:
        method: name of the method; by default that of the choice.
        options: its hyperparameters; `lr` is short for `learning_rate`.
        tuned: the choice.json of a tuning.
        default: the method when neither `method` nor `tuned` is given; without it, that is an error.
    """
    given = full_names(options)
    if tuned is None:
        if (name := method or default) is None:
            raise InputError("Expected `method`, or `tuned` with a choice of `remanence tune`; got neither.")
        return name, given
    choice = read_choice(tuned)
    if method not in (None, choice.method):
        raise InputError(f"{tuned} was tuned for {choice.method}; got {method} as `method`.")
    return choice.method, {**choice.options, **given}
