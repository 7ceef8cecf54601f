"""The rule that chooses a configuration, and the file that holds the choice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence._version import __version__
from remanence.errors import InputError, NumericalError
from remanence.experiments.durations import STAY
from remanence.experiments.measuring import curve
from remanence.experiments.unlearning_loop import Trajectory
from remanence.storage import atomic

MARGIN = 0.05
"""A balance within this share of the best counts as equally good."""
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
        diverged: the loss stopped being finite with some seed; then there is no balance.
    """

    number: int
    options: Mapping[str, float]
    steps: tuple[int, ...]
    balance: tuple[float, ...]
    diverged: bool = False

    @property
    def best(self) -> float:
        """The highest balance that held for two evaluations in a row; 0 when it diverged."""
        held = self._held()
        return float(held.max()) if len(held) else 0.0

    def steps_to(self, level: float) -> int | None:
        """The first step from which the balance stays at `level` or above for two evaluations."""
        reached = np.flatnonzero(self._held() >= level)
        return self.steps[reached[0]] if len(reached) else None

    def _held(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
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
        return Tried(number, dict(options), (), (), diverged=True)
    balances = [_balance(trajectory, goal) for trajectory, goal in trajectories]
    mean = np.mean([values for _, values in balances], axis=0)
    # step 0 is the model before unlearning, the same for every configuration
    return Tried(number, dict(options), tuple(balances[0][0][1:]), tuple(mean[1:].tolist()))


def _balance(trajectory: Trajectory, goal: Mapping[str, float]) -> tuple[list[int], list[float]]:
    """At each step, 1 minus the mean absolute distance of the metrics to their goal."""
    curves = {metric: curve(trajectory.rows, metric) for metric in goal}
    steps = next(iter(curves.values()))[0]
    gaps = np.mean([np.abs(np.asarray(values) - goal[metric]) for metric, (_, values) in curves.items()], axis=0)
    return steps, (1.0 - gaps).tolist()


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
    able = [(each, steps) for each in tried if (steps := each.steps_to(level)) is not None]
    return min(able, key=lambda pair: (pair[1], -pair[0].best, pair[0].number))


def write_choice(path: Path, choice: TunedChoice) -> None:
    """Write choice.json."""
    head = {"remanence": _KIND, "format": _FORMAT, "version": __version__}
    atomic.write_text(path, json.dumps(head | asdict(choice), indent=2, allow_nan=False) + "\n")


def read_choice(path: Path) -> TunedChoice:
    """Read the file that `remanence tune` wrote; anything else is refused."""
    try:
        document = json.loads(path.read_text())
        values = {key: document[key] for key in TunedChoice.__dataclass_fields__}
        if document["remanence"] != _KIND:
            raise KeyError("remanence")
    except FileNotFoundError:
        raise InputError(f"{path} is not a file; `remanence tune` writes choice.json.") from None
    except (ValueError, KeyError, TypeError, IsADirectoryError):
        raise InputError(f"{path} is not a choice made by `remanence tune` (its choice.json).") from None
    if document["format"] != _FORMAT:
        raise InputError(
            f"{path} was made by Remanence {document.get('version')} in format {document['format']}; this is "
            f"version {__version__}, which reads format {_FORMAT}."
        )
    return TunedChoice(**values)
