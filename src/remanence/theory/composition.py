"""Orders and weights that each composition gives to each step, and the sums over steps that they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from remanence.theory.checkpoints import Stand
from remanence.theory.logspace import log_mean_exp
from remanence.theory.sampled_gaussian import log_moment

Composition = Literal["pathwise", "stepwise", "printed", "accountant"]
Floats = NDArray[np.float64]
Rows = NDArray[np.floating[Any]]
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


def constant_order(rows: Sequence[Rows], stands: Sequence[Stand], order: float, rate: float) -> Floats:
    """S_j = Σ_t ln A_order for every run j and example, all steps at one order; shape [R, n]."""
    weights = _row_weights(stands, np.ones(len(stands[0].rows)), len(rows[0]))
    return np.stack([_weighted(run, {order: weights}, rate) for run in rows])


def varying_order(
    rows: Sequence[Rows], stands: Sequence[Stand], orders: Floats, weights: Floats, power: float, rate: float
) -> Floats:
    """Σ_t weight_t (1/power) ln E_j exp(power ln A_{order_t}), the mean over runs j; shape [n].

    The inner function of the order is convex and, for one run, linear between whole orders. So it is
    evaluated at each row's smallest and largest order and the whole ones between; other steps take the chord.
    """
    if len(rows) == 1 and rate == 1:  # a(a − 1)ρ²/2 at any real order: as many times the moment of order 2
        twos = _row_weights(stands, weights * orders * (orders - 1) / 2, len(rows[0]))
        return _weighted(rows[0], {2.0: twos}, rate)
    nodes = _nodes(stands, orders, weights, len(rows[0]), several=len(rows) > 1, whole=rate < 1)
    if len(rows) == 1:
        return _weighted(rows[0], nodes, rate)
    total = np.zeros(rows[0].shape[1])
    for order, row_weights in nodes.items():
        for row in np.flatnonzero(row_weights):
            logs = np.stack([power * log_moment(order, rate, run[row]) for run in rows])
            total += row_weights[row] / power * log_mean_exp(logs)
    return total


def _weighted(run: Rows, nodes: dict[float, Floats], rate: float) -> Floats:
    total = np.zeros(run.shape[1])
    for order, row_weights in nodes.items():
        for row in np.flatnonzero(row_weights):
            total += row_weights[row] * log_moment(order, rate, run[row])
    return total


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
