"""A pool of reference models, trained once, that replaces retraining for every later request.

Each model leaves out a part of the training data. For a forget set S, the mean over the examples of S and the models
that left them out estimates the outputs of a model never trained on S.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.forecast.expectation import Expectation, SignalExpectation
from remanence.forecast.frequency_lines import (
    Line,
    fit_lines,
    residuals,
    shift_variance,
    values_at,
    variance_parts,
)
from remanence.scores.equally_hard import equally_hard, shares_removed
from remanence.types import Ids, positions_of

Floats = NDArray[np.float64]
_KNOWN_SHARE = 0.05
"""How far the pool may be extrapolated beyond the largest share of a class that a model left out."""

STOPPING = "stopping"
"""The signal that decides when unlearning stops: the log-odds of the pool."""
_CALLS = "calls"
_QUARTERS = 4
"""Groups by difficulty that share a slope."""
_PRIOR = 6.0
"""Weight of the mean variance of all examples, in models: a variance from a few models is unreliable."""
_MOST_CLASSES = 2**20


@dataclass(frozen=True, eq=False)
class ReferencePool:
    """M models, each trained without a part of the data, and their outputs on the examples that they left out.

    Args:
        ids: the n examples.
        labels: [n] their classes.
        left_out: [M, n] which model left out which example.
        log_odds: [M, n] of the true class, minus the mean of the model on the test set; valid where left out.
        calls: [M, n] how strongly the membership attacker calls the example never trained on, 0 to 1.
        signals: [M, n] by name, further signals that do not decide when unlearning stops; valid where left out.
        losses: [n] the privacy losses of the examples, to correct for hard ones that leave together.
    """

    ids: Ids
    labels: NDArray[np.int64]
    left_out: NDArray[np.bool_]
    log_odds: Floats
    calls: Floats
    signals: Mapping[str, Floats] = field(default_factory=dict)
    losses: Floats | None = None

    def __post_init__(self) -> None:
        shape = (len(self.left_out), len(self.ids))
        arrays = {name: getattr(self, name) for name in ("left_out", "log_odds", "calls")}
        for name, array in (arrays | dict(self.signals)).items():
            if array.shape != shape:
                raise InputError(f"`{name}` must be {shape}; got {array.shape}.")
        if self.losses is not None and self.losses.shape != shape[1:]:
            raise InputError(f"`losses` must be one per example, {shape[1:]}; got {self.losses.shape}.")
        if self.labels.shape != shape[1:] or not ((self.labels >= 0) & (self.labels < _MOST_CLASSES)).all():
            raise InputError(f"`labels` must be one class per example, from 0 to {_MOST_CLASSES - 1}.")
        uncovered = int((self.left_out.sum(axis=0) < 2).sum())
        if uncovered:
            raise InputError(f"Every example must be left out by at least two models; {uncovered} are not.")

    def without(self, ids: Ids) -> ReferencePool:
        """The pool without the outputs on these examples; its models were still trained on them."""
        keep = ~np.isin(self.ids, ids)
        return ReferencePool(
            self.ids[keep],
            self.labels[keep],
            self.left_out[:, keep],
            self.log_odds[:, keep],
            self.calls[:, keep],
            {name: values[:, keep] for name, values in self.signals.items()},
            None if self.losses is None else self.losses[keep],
        )

    def joined(self, other: ReferencePool) -> ReferencePool:
        """The models of both pools, which are on the same examples."""
        if not np.array_equal(self.ids, other.ids) or self.signals.keys() != other.signals.keys():
            raise InputError("Two pools must be on the same examples, with the same signals.")
        arrays = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("left_out", "log_odds", "calls")
        }
        signals = {
            name: np.concatenate([values, other.signals[name]]) for name, values in self.signals.items()
        }
        return ReferencePool(self.ids, self.labels, **arrays, signals=signals, losses=self.losses)

    def expect(self, ids: Ids) -> Expectation:
        """The expected metrics of a model never trained on these examples.

        They depend on how frequent a class still is. For each example, a straight line in ln(frequency of its class,
        relative to all data) is fitted to the models that left it out, and evaluated at the frequency without the
        examples. They also depend on how many of the examples that are as hard as it are removed with it.
        """
        rows = positions_of(ids, self.ids, what="the calibration")
        frequencies = self._frequencies_without(rows)
        further = self._further(STOPPING, rows)
        log_odds = (values_at(self._lines["log_odds"], rows, frequencies) + further).mean()
        calls = values_at(self._lines[_CALLS], rows, frequencies) + self._further(_CALLS, rows)
        mia = np.clip(calls, 0, 1).mean()
        return Expectation(
            float(mia),
            self._spread("calls", len(rows)),
            float(log_odds),
            self._spread("log_odds", len(rows)),
            float(np.maximum(-further, 0.0).mean()),
            self._beyond(rows),
        )

    def expect_signal(self, name: str, ids: Ids) -> SignalExpectation:
        """The expected signal of each of these examples, for a model never trained on any of them.

        The expectation follows the frequency of a class, as in `expect`. The variance of an example is shrunk
        towards the mean of all examples.

        Args:
            name: a signal of the verdict, or `STOPPING` for the log-odds that decide when unlearning stops.
            ids: the examples.
        """
        left_out, values = self.left_out, self._at_same_shares(name)
        rows = positions_of(ids, self.ids, what="the calibration")
        line = fit_lines(values, self._frequencies, left_out)
        residual, counts = residuals(values, self._frequencies, left_out, line), left_out.sum(axis=0)
        variances = (residual**2).sum(axis=0) / counts
        shift, within_class = shift_variance(residual, left_out), self._class_shift(residual)
        further = self._further(name, rows)
        return SignalExpectation(
            values_at(line, rows, self._frequencies_without(rows)) + further,
            (counts[rows] * variances[rows] + _PRIOR * variances.mean()) / (counts[rows] + _PRIOR),
            counts[rows],
            self.labels[rows],
            shift,
            max(0.0, within_class - shift),
            np.maximum(-further, 0.0),
        )

    def _signal(self, name: str) -> Floats:
        own = {STOPPING: self.log_odds, _CALLS: self.calls}
        return own[name] if name in own else self.signals[name]

    def _at_same_shares(self, name: str) -> Floats:
        """[M, n] a signal as if every model had removed the mean share of the examples as hard as each."""
        values = self._signal(name)
        if self.losses is None:
            return values
        slopes, shares = self._together(name)
        same: Floats = np.where(self.left_out, values - slopes * (self._alike(self.left_out) - shares), 0.0)
        return same

    def _further(self, name: str, rows: NDArray[np.int64]) -> Floats:
        """[m] how much a signal of these examples changes with the share of those as hard as each that is removed."""
        if self.losses is None:
            return np.zeros(len(rows))
        slopes, shares = self._together(name)
        change: Floats = (slopes * (self._alike(self._only(rows))[0] - shares))[rows]
        return change

    def _class_shift(self, residual: Floats) -> float:
        """Variance of the shift of a model that is common to the examples of a class."""
        shifts = [
            shift_variance(residual[:, of_class], self.left_out[:, of_class]) for of_class in self._classes
        ]
        return float(np.mean(shifts))

    @cached_property
    def _classes(self) -> list[NDArray[np.bool_]]:
        return [self.labels == label for label in np.unique(self.labels)]

    @cached_property
    def class_sizes(self) -> NDArray[np.int64]:
        """Number of training examples by class."""
        return np.bincount(self.labels)

    def _together(self, name: str) -> tuple[Floats, Floats]:
        """[n] the effect on a signal of removing all examples as hard as one, and the share that was removed of them.

        As hard are the examples of the same class in the same tenth of difficulty. The effect is a slope common to a
        quarter of all examples, at the same frequency of the class; the share is the mean over the models that left
        out the example.
        """
        if self.losses is None:
            return np.zeros(len(self.ids)), np.zeros(len(self.ids))
        values, weight = self._signal(name), self.left_out.astype(np.float64)
        count, sign = weight.sum(axis=0), 1.0 if name == _CALLS else -1.0
        alike = self._alike(self.left_out)
        columns = [
            (part - (part * weight).sum(axis=0) / count) * weight
            for part in (alike, self._frequencies, values)
        ]
        slopes = np.zeros(len(self.ids))
        for quarter in np.array_split(np.argsort(self.losses, kind="stable"), _QUARTERS):
            shares, frequencies, signal = (column[:, quarter].ravel() for column in columns)
            (slope, _), *_ = np.linalg.lstsq(np.stack([shares, frequencies], axis=1), signal, rcond=None)
            slopes[quarter] = sign * max(
                0.0, sign * float(slope)
            )  # what leaves with many is not better known
        return slopes, (alike * weight).sum(axis=0) / count

    def _alike(self, removed: NDArray[np.bool_]) -> Floats:
        """[M, n] the share of the examples as hard as each that are removed, by [M, n] or [n] which are removed."""
        return shares_removed(self._groups, np.atleast_2d(removed))

    @cached_property
    def _groups(self) -> NDArray[np.int64]:
        """[n] the group of examples that are as hard as each."""
        assert self.losses is not None  # callers look
        return equally_hard(self.losses, self.labels)

    @cached_property
    def _frequencies(self) -> Floats:
        """[M, n] ln of how frequent the example's class was for each model, relative to all data."""
        return self._relative_frequencies(self.left_out)

    def _relative_frequencies(self, removed: NDArray[np.bool_]) -> Floats:
        """[M, n] ln of how frequent the example's class is in what stays, relative to all data, by [M, n] what leaves.

        What counts is the share of the class that stays beside that of all examples: a model that half of each class is
        missing from is no less sure about one class than about another. With a single class, the share itself counts.
        """
        kept = self._kept_shares(removed)
        if len(self._classes) > 1:
            kept /= np.maximum(1 - removed.mean(axis=1, keepdims=True), 0.5 / len(self.ids))
        logs: Floats = np.log(kept)
        return logs

    def _kept_shares(self, removed: NDArray[np.bool_]) -> Floats:
        """[M, n] the share of the example's class that stays, at least half an example, by [M, n] what leaves."""
        shares: Floats = np.maximum(
            1 - shares_removed(self.labels, removed), 0.5 / self.class_sizes[self.labels]
        )
        return shares

    @cached_property
    def _lines(self) -> Mapping[str, Line]:
        return {
            name: fit_lines(values, self._frequencies, self.left_out)
            for name, values in self._stopping_values.items()
        }

    @cached_property
    def _stopping_values(self) -> Mapping[str, Floats]:
        return {"log_odds": self._at_same_shares(STOPPING), _CALLS: self._at_same_shares(_CALLS)}

    @cached_property
    def _components(self) -> Mapping[str, tuple[float, float]]:
        return {
            name: variance_parts(values, self._frequencies, self.left_out, self._lines[name])
            for name, values in self._stopping_values.items()
        }

    def _spread(self, name: str, size: int) -> float:
        between, within = self._components[name]
        return math.sqrt(between + within / size)

    def _frequencies_without(self, rows: NDArray[np.int64]) -> Floats:
        """[m] the same for these examples when all of them are removed."""
        return np.asarray(self._relative_frequencies(self._only(rows))[0, rows])

    def _only(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[1, n] which examples these are."""
        return np.isin(np.arange(len(self.ids)), rows)[None]

    def _beyond(self, rows: NDArray[np.int64]) -> tuple[str, ...]:
        known, removed = (
            1 - float(self._kept_shares(part).min()) for part in (self.left_out, self._only(rows))
        )
        if removed <= known + _KNOWN_SHARE:
            return ()
        return (
            f"it removes {removed:.0%} of a class; no reference model was trained without more than {known:.0%} of one",
        )
