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
"""Exponent of the share of the budget that may be spent by a share of the training: most of it is early."""
LEARNING = 1 / 3
"""Share of the training by which all of the budget may be spent: later, most models have fitted their examples."""
NEGLIGIBLE = 0.01
"""Steps whose mean squared error is below this share of the largest so far add nothing to the ranks."""
PLAIN_STEPS = 3
"""Steps that are timed without recording before the cost of recording a step is known."""
UNTIMED_END = 1.5
"""Factor by which the cost of the end is overestimated before any pass was timed: in small networks it takes longer."""
PREPARATION = 4
"""The first exact pass prepares for the model, however few examples it is over; that takes as long as these steps."""
PLAIN_EVERY = 19
"""Of this many steps at least one is not recorded: if all were, nobody would see that plain ones became faster."""
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
        self._passes_spent, self._steps_spent = 0.0, 0.0
        self._is_spending = False
        self._upkeep = 0.0
        self._pass_cost: float | None = None
        self.passes, self.recorded_steps = 0, 0
        self._last_pass = start
        self._largest_error, self._matters = 0.0, True
        self._last_measured = np.full(n_examples, -1, np.int64)
        self._unmeasured = n_examples
        self._plain: deque[float] = deque(maxlen=9)
        self._uncharged: list[float] = []
        self._extras: deque[float] = deque(maxlen=9)
        self._last_plain = start

    @property
    def spent(self) -> float:
        """Seconds that recording has cost: passes, and what recorded steps took longer than others.

        Of the first recorded steps it is half, until enough plain ones were timed.
        """
        return self._passes_spent + self._steps_spent + sum(self._uncharged) / 2

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
        budget = self._overhead * self._training_seconds() / done
        return self.spent + seconds <= budget * math.pow(min(1.0, done / LEARNING), EARLY)

    def allows_errors(self, step: int) -> bool:
        """Whether the errors of a step may be read, which costs little, but at every step."""
        return self.allows(self._unavoidable(step), step)

    def _unavoidable(self, step: int) -> float:
        """What is still to be spent in any case: on the upkeep of all later steps, and at the end.

        The end is an exact pass, or in flight the part of one over examples that no step has measured.
        """
        end = self._expected_pass(step) * self._unmeasured / len(self._last_measured)
        if self._pass_cost is None and self._unmeasured:
            end = UNTIMED_END * end + (PREPARATION * median(self._plain) if self._plain else 0.0)
        return end + self._upkeep / max(1, step - self._start) * (self._total - step)

    def _expected_pass(self, step: int) -> float:
        """Cost of the last exact pass; one that was never timed is taken to cost an epoch of training."""
        if self._pass_cost is not None:
            return self._pass_cost
        return self._training_seconds() / max(1, step - self._start) * self._epoch_steps

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of a block as a cost of recording; inside another such block it is counted already."""
        if self._is_spending:
            yield
            return
        began, self._is_spending = self.clock(), True
        try:
            yield
        finally:
            self._is_spending = False
            self._passes_spent += self.clock() - began

    @contextmanager
    def upkeep(self) -> Iterator[None]:
        """Count the time of what every step costs, however little is recorded, and expect as much of later ones."""
        began = self.clock()
        with self.spending():
            yield
        self._upkeep += self.clock() - began

    @contextmanager
    def passing(self, step: int) -> Iterator[None]:
        """Count the time of an exact pass, and expect the next one to cost the same."""
        began = self.clock()
        with self.spending():
            yield
        self._pass_cost = self.clock() - began
        self.passes += 1
        self._last_pass = step

    def note_errors(self, mean_square: float) -> None:
        """The mean squared error norm of the latest steps or row: where it is negligible, nothing is recorded."""
        self._largest_error = max(self._largest_error, mean_square)
        self._matters = mean_square >= NEGLIGIBLE * self._largest_error

    def makes_pass(self, step: int) -> bool:
        """Whether to make an exact pass after this step; always at the end."""
        if step >= self._total:
            return True
        if not (self._matters or step >= LONGEST_GAP * max(self._last_pass, 1)):
            return False
        return self.allows(2 * self._expected_pass(step), step)

    def records_step(self, columns: NDArray[np.int64], step: int) -> bool:
        """Whether to measure the norms of these examples in the step that uses them."""
        if math.isinf(self._overhead):
            return True
        if len(self._plain) < PLAIN_STEPS:
            return (step - self._start) % 2 == 0
        if step - self._last_plain >= PLAIN_EVERY:
            return False
        last = self._last_measured[columns]
        due = self._matters or bool((last < 0).any()) or step >= LONGEST_GAP * max(last.mean(), 1.0)
        is_old = (step - last).mean() >= FRESH * (step - self._last_measured).mean()
        if not (due and is_old):
            return False
        saved = self._expected_pass(step) * int((last < 0).sum()) / len(self._last_measured)
        extra = self._step_cost() - saved
        # what is cheaper now than at the end is done now, whatever the budget
        return extra <= 0 or self.allows(extra + self._unavoidable(step), step)

    def note_step(self, columns: NDArray[np.int64], step: int, seconds: float, *, recorded: bool) -> None:
        """The time of a step's forward and backward pass."""
        if recorded:
            self._unmeasured -= int((self._last_measured[columns] < 0).sum())
            self._last_measured[columns] = step
            self.recorded_steps += 1
            self._uncharged.append(seconds)
        else:
            self._plain.append(seconds)
            self._last_plain = step
        if len(self._plain) >= PLAIN_STEPS:
            extras = [max(0.0, taken - median(self._plain)) for taken in self._uncharged]
            self._extras.extend(extras)
            self._steps_spent += sum(extras)
            self._uncharged.clear()

    def _step_cost(self) -> float:
        """What a recorded step takes longer than a plain one; the very first one also prepares for the others."""
        return median(self._extras) if self._extras else 0.0
