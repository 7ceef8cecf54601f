"""Orders and weights that each composition gives to each step, and the sums over steps that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from remanence.theory.checkpoints import Stand
from remanence.theory.logspace import log_mean_exp
from remanence.theory.sampled_gaussian import log_moment

Composition = Literal["pathwise", "stepwise", "printed", "accountant"]
Floats = NDArray[np.float64]
COMPOSITIONS = ("pathwise", "stepwise", "printed", "accountant")
PATHWISE_GRID = (2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Where p may be chosen; fixed beforehand, so that choosing it on the data stays mild."""

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
    """The per-step moments of some training runs: ln h of everyone accounted for, by run, row and order."""

    @property
    def full(self) -> bool:
        """Every step sees every example, so that ln h is a(a − 1)/2 times its value at order 2."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Runs, rows of checkpoints, and how many are accounted for."""

    def __call__(self, order: float, rows: NDArray[np.int64]) -> Floats:
        """The ln h of some rows at a real order, [runs, rows, n]."""


@dataclass(frozen=True)
class RatioMoments:
    """Moments of single examples, from their ratios [runs, rows, n]."""

    ratios: NDArray[np.floating[Any]]
    rate: float

    @property
    def full(self) -> bool:
        """Whether every step sees every example."""
        return self.rate == 1

    @property
    def shape(self) -> tuple[int, int, int]:
        """Runs, rows, examples."""
        runs, rows, n = self.ratios.shape
        return runs, rows, n

    def __call__(self, order: float, rows: NDArray[np.int64]) -> Floats:
        """Their ln A at a real order."""
        return log_moment(order, self.rate, self.ratios[:, rows])


def composed_loss(
    moments: Moments, stands: Sequence[Stand], composition: Composition, alpha: float, p: float
) -> Floats:
    """The bound of one composition at one p, for everyone accounted for; infinite beyond float range."""
    with np.errstate(over="ignore"):
        return _composed(moments, stands, composition, alpha, p)


def _composed(
    moments: Moments, stands: Sequence[Stand], composition: Composition, alpha: float, p: float
) -> Floats:
    total = len(stands[0].rows)
    if composition == "accountant":
        return np.asarray(_path_sums(moments, stands, alpha).max(axis=0) / (alpha - 1))
    if composition == "pathwise":
        sums = _path_sums(moments, stands, 1 + (alpha - 1) * p / (p - 1))
        return log_mean_exp((p - 1) * sums) / (p * (alpha - 1))
    if composition == "printed":
        orders = printed_orders(alpha, p, total)
        weights = p * np.exp(np.arange(2, total + 2) * np.log1p(-1 / p)) / (alpha - 1)
        return _step_sum(moments, stands, orders if moments.full else np.ceil(orders), weights, p)
    orders = stepwise_orders(alpha, p, total)
    first = [Stand(stand.rows[:1], stand.share) for stand in stands]
    later = [Stand(stand.rows[1:], stand.share) for stand in stands]
    loss = _step_sum(moments, first, orders[:1], 1 / (orders[:1] - 1), 1.0)
    return loss + _step_sum(moments, later, orders[1:], 1 / (orders[1:] - 1), p) if total > 1 else loss


def _path_sums(moments: Moments, stands: Sequence[Stand], order: float) -> Floats:
    """S_j = Σ_t ln h at one order, for every run j; shape [runs, n]."""
    weights = _row_weights(stands, np.ones(len(stands[0].rows)), moments.shape[1])
    parts = (
        np.einsum("m,rmn->rn", weights[rows], moments(order, rows)) for rows in _chunks(weights, moments)
    )
    return np.asarray(sum(parts))


def _step_sum(
    moments: Moments, stands: Sequence[Stand], orders: Floats, weights: Floats, power: float
) -> Floats:
    """Σ_t weight_t (1/power) ln E_j exp(power ln h_{order_t}), the mean over runs j; shape [n].

    The inner function of the order is convex and, for one run, linear between whole orders. So it is
    evaluated at each row's smallest and largest order and the whole ones between; other steps take the chord.
    """
    n_runs, n_rows, _ = moments.shape
    if n_runs == 1 and moments.full:
        nodes = {2.0: _row_weights(stands, weights * orders * (orders - 1) / 2, n_rows)}
    else:
        nodes = _nodes(stands, orders, weights, n_rows, several=n_runs > 1, whole=not moments.full)
    parts = (
        row_weights[rows] @ log_mean_exp(power * moments(order, rows)) / power
        for order, row_weights in nodes.items()
        for rows in _chunks(row_weights, moments)
    )
    return np.asarray(sum(parts))


_CHUNK = 1 << 20
"""Moments held at once."""


def _chunks(weights: Floats, moments: Moments) -> Iterator[NDArray[np.int64]]:
    """The rows that carry weight, a few at a time."""
    rows = np.flatnonzero(weights)
    n_runs, _, n = moments.shape
    size = max(1, _CHUNK // (n_runs * n))
    return (rows[start : start + size] for start in range(0, rows.size, size))


def _row_weights(stands: Sequence[Stand], weights: Floats, n_rows: int) -> Floats:
    parts = [stand.share * np.bincount(stand.rows, weights, minlength=n_rows) for stand in stands]
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def _nodes(
    stands: Sequence[Stand], orders: Floats, weights: Floats, n_rows: int, *, several: bool, whole: bool
) -> dict[float, Floats]:
    """The orders to evaluate and each row's weight on them: every step split between its two neighbours."""
    low, high = (np.floor(orders), np.ceil(orders)) if whole else (0 * orders, np.inf + orders)
    if several:
        low, high = _tighter(stands, orders, low, high, n_rows)
    gap = high - low
    upper = np.divide(orders - low, gap, out=np.zeros_like(orders), where=gap > 0)
    nodes: dict[float, Floats] = {}
    for ends, part in ((low, weights * (1 - upper)), (high, weights * upper)):
        for order in np.unique(ends):
            here = np.where(ends == order, part, 0.0)
            if here.any():
                added = _row_weights(stands, here, n_rows)
                nodes[float(order)] = nodes.get(float(order), 0.0) + added
    return nodes


def _tighter(
    stands: Sequence[Stand], orders: Floats, low: Floats, high: Floats, n_rows: int
) -> tuple[Floats, Floats]:
    """Bring the neighbours of each step's order as near as the orders that its stretch of training spans."""
    stretch = stands[0].rows
    smallest, largest = np.full(n_rows, np.inf), np.zeros(n_rows)
    np.minimum.at(smallest, stretch, orders)
    np.maximum.at(largest, stretch, orders)
    return np.maximum(low, smallest[stretch]), np.minimum(high, largest[stretch])
