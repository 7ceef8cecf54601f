"""Decide what to record so that recording costs at most a share of the training time, by the clock."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.training.placement import LONGEST_GAP

EARLY = 0.25
"""The share of the budget that may be spent by a share of the training, as its exponent: most of it is early."""
NEGLIGIBLE = 0.01
"""Steps whose mean squared error is below this share of the largest so far add nothing to the ranks."""
PLAIN_STEPS = 3
"""Steps that are timed without recording before the cost of recording a step is known."""
FRESH = 0.5
"""A batch is measured if its norms are at least this old, in units of the average age over all examples."""


class OverheadPlan:
    """What to record next, given what recording has cost so far.

    Args:
        overhead: largest share of the training time; infinite to record everything.
        total_steps: number of optimizer steps of the training.
        n_examples: number of examples.
        epoch_steps: steps per epoch.
        start: steps already taken.
        clock: gives the time in seconds.
    """

    def __init__(
        self,
        overhead: float,
        total_steps: int,
        n_examples: int,
        epoch_steps: float,
        start: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not overhead > 0:
            raise InputError(f"`overhead` must be a share of the training time above 0; got {overhead}.")
        self._overhead, self._total, self._start, self.clock = overhead, total_steps, start, clock
        self._epoch_steps, self._began = epoch_steps, clock()
        self._passes_spent = 0.0
        self._pass_cost: float | None = None
        self.passes, self.recorded_steps = 0, 0
        self._last_pass = start
        self._largest_error, self._matters = 0.0, True
        self._last_measured = np.full(n_examples, -1, np.int64)
        self._plain: deque[float] = deque(maxlen=99)
        self._recorded_seconds = 0.0

    @property
    def spent(self) -> float:
        """Seconds that recording has cost: passes, and what recorded steps took longer than others."""
        # before a plain step was timed, half of a recorded one
        if not self._plain:
            return self._passes_spent + self._recorded_seconds / 2
        return self._passes_spent + max(
            0.0, self._recorded_seconds - self.recorded_steps * median(self._plain)
        )

    @property
    def share(self) -> float:
        """What recording has cost so far, as a share of the time of the training itself."""
        return self.spent / max(self._training_seconds(), 1e-9)

    def _training_seconds(self) -> float:
        return self.clock() - self._began - self.spent

    def allows(self, seconds: float, step: int) -> bool:
        """Whether this much more may be spent after `step` steps."""
        done = (step - self._start) / max(1, self._total - self._start)
        if done <= 0 or math.isinf(self._overhead):
            return True
        training = self._training_seconds() / done
        return self.spent + seconds <= self._overhead * training * math.pow(done, EARLY)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of a block as a cost of recording."""
        began = self.clock()
        yield
        self.charge(self.clock() - began)

    def charge(self, seconds: float) -> None:
        """Count this time as a cost of recording."""
        self._passes_spent += seconds

    @contextmanager
    def passing(self, step: int) -> Iterator[None]:
        """Count the time of an exact pass, and expect the next one to cost the same."""
        before = self._passes_spent
        with self.spending():
            yield
        self._pass_cost = self._passes_spent - before
        self.passes += 1
        self._last_pass = step

    def note_errors(self, mean_square: float) -> None:
        """The mean squared error norm of the latest steps or row: where it is negligible, nothing is recorded."""
        self._largest_error = max(self._largest_error, mean_square)
        self._matters = mean_square >= NEGLIGIBLE * self._largest_error

    def makes_pass(self, step: int) -> bool:
        """Whether to make an exact pass after this step; always at the end, for which its cost is kept in reserve."""
        if step >= self._total:
            return True
        if not (self._matters or step >= LONGEST_GAP * max(self._last_pass, 1)):
            return False
        # a pass that was never timed is taken to cost an epoch of training
        epoch = self._training_seconds() / max(1, step - self._start) * self._epoch_steps
        return self.allows(2 * (epoch if self._pass_cost is None else self._pass_cost), step)

    def records_step(self, columns: NDArray[np.int64], step: int) -> bool:
        """Whether to measure the norms of these examples in the step that uses them."""
        if math.isinf(self._overhead):
            return True
        if len(self._plain) < PLAIN_STEPS:
            return (step - self._start) % 2 == 0
        last = self._last_measured[columns]
        due = self._matters or bool((last < 0).any()) or step >= LONGEST_GAP * max(last.mean(), 1.0)
        is_old = (step - last).mean() >= FRESH * (step - self._last_measured).mean()
        return due and is_old and self.allows(self._step_cost(), step)

    def note_step(self, columns: NDArray[np.int64], step: int, seconds: float, *, recorded: bool) -> None:
        """The time of a step's forward and backward pass."""
        if not recorded:
            self._plain.append(seconds)
            return
        self._last_measured[columns] = step
        self._recorded_seconds += seconds
        self.recorded_steps += 1

    def _step_cost(self) -> float:
        recorded = self.recorded_steps
        return max(0.0, self._recorded_seconds / recorded - median(self._plain)) if recorded else 0.0
