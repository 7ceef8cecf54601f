"""Compositions over steps: the order and weight that each gives to every step, and the resulting sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from remanence.theory.checkpoint_rules import StepRows
from remanence.theory.logspace import log_mean_exp
from remanence.theory.sampled_gaussian import log_moment

Composition = Literal["pathwise", "stepwise", "printed", "accountant"]
Floats = NDArray[np.float64]
COMPOSITIONS = ("pathwise", "stepwise", "printed", "accountant")
PATHWISE_GRID = (2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""The grid for p; fixed beforehand, so that choosing p on the data has little effect."""

_LARGEST_ORDER = 1e150


def stepwise_orders(alpha: float, p: float, steps: int) -> Floats:
    """a_i = 1 + (α − 1)(p/(p − 1))^i for steps t = 1..T with i = T − t: the first step has the largest."""
    i = np.arange(steps - 1, -1, -1, dtype=np.float64)
    with np.errstate(over="ignore"):
        orders = 1 + (alpha - 1) * np.exp(-i * np.log1p(-1 / p))
    return np.asarray(np.minimum(orders, _LARGEST_ORDER))


def printed_orders(alpha: float, p: float, steps: int) -> Floats:
    """o_p composed t times, o_p(a) = pa/(p − 1) − 1/p; t counts from the start, the last has the largest."""
    t = np.arange(1, steps + 1, dtype=np.float64)
    fixed = (p - 1) / p  # o_p(a) = a here
    with np.errstate(over="ignore"):
        orders = fixed + (alpha - fixed) * np.exp(-t * np.log1p(-1 / p))
    return np.asarray(np.minimum(orders, _LARGEST_ORDER))


class Moments(Protocol):
    """The per-step moments of training runs: ln h of every example or group, by run, row and order."""

    @property
    def full(self) -> bool:
        """Every step sees every example, so that ln h is a(a − 1)/2 times its value at order 2."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Number of runs, of rows of checkpoints, and of examples or groups."""

    def __call__(self, order: float, rows: NDArray[np.int64]) -> Floats:
        """The ln h of some rows at a real order, [runs, rows, n]."""


@dataclass(frozen=True)
class RatioMoments:
    """Moments of single examples, from their ratios [runs, rows, n]."""

    ratios: NDArray[np.floating[Any]]
    rate: float

    @property
    def full(self) -> bool:
        return self.rate == 1

    @property
    def shape(self) -> tuple[int, int, int]:
        runs, rows, n = self.ratios.shape
        return runs, rows, n

    def __call__(self, order: float, rows: NDArray[np.int64]) -> Floats:
        return log_moment(order, self.rate, self.ratios[:, rows])


def composed_loss(
    moments: Moments, step_rows: Sequence[StepRows], composition: Composition, alpha: float, p: float
) -> Floats:
    """The bound of one composition at one p, for every example or group; infinite beyond float range."""
    with np.errstate(over="ignore"):
        return _composed(moments, step_rows, composition, alpha, p)


def _composed(
    moments: Moments, step_rows: Sequence[StepRows], composition: Composition, alpha: float, p: float
) -> Floats:
    total = len(step_rows[0].rows)
    if composition == "accountant":
        return np.asarray(_path_sums(moments, step_rows, alpha).max(axis=0) / (alpha - 1))
    if composition == "pathwise":
        sums = _path_sums(moments, step_rows, 1 + (alpha - 1) * p / (p - 1))
        return log_mean_exp((p - 1) * sums) / (p * (alpha - 1))
    if composition == "printed":
        orders = printed_orders(alpha, p, total)
        weights = p * np.exp(np.arange(2, total + 2) * np.log1p(-1 / p)) / (alpha - 1)
        return _step_sum(moments, step_rows, orders if moments.full else np.ceil(orders), weights, p)
    orders = stepwise_orders(alpha, p, total)
    first = [StepRows(part.rows[:1], part.share) for part in step_rows]
    later = [StepRows(part.rows[1:], part.share) for part in step_rows]
    loss = _step_sum(moments, first, orders[:1], 1 / (orders[:1] - 1), 1.0)
    return loss + _step_sum(moments, later, orders[1:], 1 / (orders[1:] - 1), p) if total > 1 else loss


def _path_sums(moments: Moments, step_rows: Sequence[StepRows], order: float) -> Floats:
    """S_j = Σ_t ln h at one order, for every run j; shape [runs, n]."""
    weights = _row_weights(step_rows, np.ones(len(step_rows[0].rows)), moments.shape[1])
    parts = (
        np.einsum("m,rmn->rn", weights[rows], moments(order, rows)) for rows in _chunks(weights, moments)
    )
    return np.asarray(sum(parts))


def _step_sum(
    moments: Moments, step_rows: Sequence[StepRows], orders: Floats, weights: Floats, power: float
) -> Floats:
    """Σ_t weight_t (1/power) ln E_j exp(power ln h_{order_t}), the mean over runs j; shape [n].

    The inner function of the order is convex and, for one run, linear between whole orders. So it is
    evaluated at each row's smallest and largest order and the whole ones between; other steps are interpolated.
    """
    n_runs, n_rows, _ = moments.shape
    if n_runs == 1 and moments.full:
        nodes = {2.0: _row_weights(step_rows, weights * orders * (orders - 1) / 2, n_rows)}
    else:
        nodes = _nodes(step_rows, orders, weights, n_rows, several=n_runs > 1, whole=not moments.full)
    parts = (
        row_weights[rows] @ log_mean_exp(power * moments(order, rows)) / power
        for order, row_weights in nodes.items()
        for rows in _chunks(row_weights, moments)
    )
    return np.asarray(sum(parts))


_CHUNK = 1 << 20
"""Moments in memory at a time."""


def _chunks(weights: Floats, moments: Moments) -> Iterator[NDArray[np.int64]]:
    """The rows with nonzero weight, a few at a time."""
    rows = np.flatnonzero(weights)
    n_runs, _, n = moments.shape
    size = max(1, _CHUNK // (n_runs * n))
    return (rows[start : start + size] for start in range(0, rows.size, size))


def _row_weights(step_rows: Sequence[StepRows], weights: Floats, n_rows: int) -> Floats:
    parts = [part.share * np.bincount(part.rows, weights, minlength=n_rows) for part in step_rows]
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def _nodes(
    step_rows: Sequence[StepRows], orders: Floats, weights: Floats, n_rows: int, *, several: bool, whole: bool
) -> dict[float, Floats]:
    """The orders to evaluate and each row's weight on them: every step is divided between its two neighbors."""
    low, high = (np.floor(orders), np.ceil(orders)) if whole else (0 * orders, np.inf + orders)
    if several:
        low, high = _tighter(step_rows, orders, low, high, n_rows)
    gap = high - low
    upper = np.divide(orders - low, gap, out=np.zeros_like(orders), where=gap > 0)
    nodes: dict[float, Floats] = {}
    for ends, part in ((low, weights * (1 - upper)), (high, weights * upper)):
        for order in np.unique(ends):
            selected = np.where(ends == order, part, 0.0)
            if selected.any():
                added = _row_weights(step_rows, selected, n_rows)
                nodes[float(order)] = nodes.get(float(order), 0.0) + added
    return nodes


def _tighter(
    step_rows: Sequence[StepRows], orders: Floats, low: Floats, high: Floats, n_rows: int
) -> tuple[Floats, Floats]:
    """Narrow the neighbors of each step's order to the orders that occur between the same checkpoints."""
    stretch = step_rows[0].rows
    smallest, largest = np.full(n_rows, np.inf), np.zeros(n_rows)
    np.minimum.at(smallest, stretch, orders)
    np.maximum.at(largest, stretch, orders)
    return np.maximum(low, smallest[stretch]), np.minimum(high, largest[stretch])
