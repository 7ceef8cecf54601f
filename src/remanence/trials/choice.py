"""Of several configurations, the one to unlearn with; and the file that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remanence._version import __version__
from remanence.errors import InputError, NumericalError
from remanence.storage import atomic
from remanence.trials.stopping import STAY

MARGIN = 0.05
"""A balance this close to the best, relative to it, counts as equally good."""
_KIND, _FORMAT = "tuned choice", 1


@dataclass(frozen=True)
class Tried:
    """One configuration and how it went.

    Args:
        number: counts the trials from 0.
        options: what was tried.
        steps: when it was measured, increasing, after unlearning began.
        balance: at each of these, 1 minus the mean absolute distance to the oracles over the metrics, averaged over
            seeds. Both sides count: a wrecked model, or one that errs more than the oracle does, loses too.
        diverged: the loss stopped being a number in some seed; then there is no balance.
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
        there = np.flatnonzero(self._held() >= level)
        return self.steps[there[0]] if len(there) else None

    def _held(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        values = np.asarray(self.balance, dtype=np.float64)
        if len(values) < STAY:
            return values
        windows = np.lib.stride_tricks.sliding_window_view(values, STAY)
        return np.asarray(windows.min(axis=1))


@dataclass(frozen=True)
class Choice:
    """What tuning came to, and what `remanence unlearn --tuned` reads.

    Args:
        method: that was tuned.
        options: the chosen configuration, with what was held fixed.
        balance: the best it reached.
        steps: after how many steps it came within 5 % of the best of all.
        untouched: the balance before any unlearning; within 5 % of the best, the forget set told little.
        trials: how many configurations were tried.
        run: digest of the run it was tuned on.
        forget: name of the forget set it was tuned on.
        seed: of the tuning.
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


def enough(tried: Sequence[Tried], untouched: float) -> float:
    """The balance that counts as got there: within 5 % of the best, and above what it was before unlearning.

    Where the model was within 5 % of the best before, steps tell nothing, and only the best itself will do.
    """
    best = max((each.best for each in tried), default=0.0)
    level = (1 - MARGIN) * best
    return level if level > untouched else best


def fastest_of_the_best(tried: Sequence[Tried], untouched: float) -> tuple[Tried, int]:
    """Among the trials with balance enough, the one that gets there in the fewest steps; and those steps.

    Of equally fast ones the better is taken, then the earlier.
    """
    level = enough(tried, untouched)
    if level == 0:
        raise NumericalError("Every trial diverged; give a --range with smaller learning rates.")
    able = [(each, steps) for each in tried if (steps := each.steps_to(level)) is not None]
    return min(able, key=lambda pair: (pair[1], -pair[0].best, pair[0].number))


def write_choice(path: Path, choice: Choice) -> None:
    """Write choice.json."""
    head = {"remanence": _KIND, "format": _FORMAT, "version": __version__}
    atomic.write_text(path, json.dumps(head | asdict(choice), indent=2, allow_nan=False) + "\n")


def read_choice(path: Path) -> Choice:
    """Read what `remanence tune` wrote; anything else is refused."""
    try:
        document = json.loads(path.read_text())
        values = {key: document[key] for key in Choice.__dataclass_fields__}
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
    return Choice(**values)
