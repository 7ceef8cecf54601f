"""ln h of one step for a whole forget set: coupled batches, their upper bound, and independent batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from remanence.theory.logspace import log_mean_exp, softplus
from remanence.theory.quadrature import log_remainder
from remanence.theory.sampled_gaussian import Floats, full_batch

_FINE_CELLS = 64
"""Cells per average norm when the Bernoulli laws are convolved."""
_COARSE = 1.01
"""Ratio of neighboring values after the convolution, for the integral."""
_FAINTEST = -575.0
"""Log-probabilities below this are near the end of float64 and are bounded instead."""
_WIDEST = 1e5
"""Beyond this range of the integral every example counts as drawn every time, which is never smaller."""


@dataclass(frozen=True)
class Coupled:
    """ln E exp(Σ_{i<j} ⟨u_i, u_j⟩), u = Σ_x b_x g_x in units of the noise, estimated from resampled batches.

    Args:
        gram: [m, m] inner products of the forget set's gradients over the squared unit (Bσ)².
        rate: the sampling rate.
        pool: number of mini-batches drawn, from which tuples are resampled.
        draws: number of tuples.
        seed: random seed of both.
    """

    gram: Floats
    rate: float
    pool: int
    draws: int
    seed: int

    def log_moment(self, order: int) -> float:
        """The estimate at a whole order; exact where nothing is random."""
        if len(self.gram) == 0 or order < 2:
            return 0.0
        if self.rate == 1:
            return float(full_batch(order, np.sqrt(max(self.gram.sum(), 0.0))))
        rng = np.random.default_rng((self.seed, order))
        return float(log_mean_exp(_pair_sums(self._batches, rng, self.draws, order)))

    @cached_property
    def _batches(self) -> Floats:
        """Gram matrix of the pool's mini-batch sums."""
        rng = np.random.default_rng(self.seed)
        drawn = (rng.random((self.pool, len(self.gram))) < self.rate).astype(np.float64)
        return np.asarray(drawn @ self.gram @ drawn.T)


@dataclass(frozen=True)
class CoupledUpper:
    """Two deterministic bounds on `Coupled`, the smaller of them.

    Each inner product ⟨u_i, u_j⟩ is at most v_i v_j, with v = Σ b_x ‖g_x‖ by the triangle inequality, or
    v² = λ Σ b_x ‖g_x‖² with λ the largest eigenvalue of the gradients' cosines. The first is tighter for
    aligned gradients, the second for a large set of gradients in different directions.
    """

    gram: Floats
    rate: float

    def log_moment(self, order: int) -> float:
        if len(self.gram) == 0 or order < 2 or not self.gram.any():
            return 0.0
        if self.rate == 1:
            return float(full_batch(order, np.sqrt(max(self.gram.sum(), 0.0))))
        return min(_line_moment(order, values, log_weights) for values, log_weights in self._laws)

    @cached_property
    def _laws(self) -> tuple[tuple[Floats, Floats], ...]:
        """The laws of the two v, as values and logs of their probabilities."""
        norms = np.sqrt(np.diag(self.gram))
        cosines = self.gram / np.maximum(np.outer(norms, norms), np.finfo(float).tiny)
        top = min(max(float(np.linalg.eigvalsh(cosines)[-1]) * (1 + 1e-9), 1.0), float(len(norms)))
        sums, squares = (_bernoulli_sum(sizes[sizes > 0], self.rate) for sizes in (norms, norms**2))
        return sums, (np.sqrt(top * squares[0]), squares[1])


def _line_moment(order: int, values: Floats, log_weights: Floats) -> float:
    """ln E_z (E_v e^{vz − v²/2})^a for a whole a.

    Expanded, the integrand is a mixture of unit Gaussians at sums of the values, so the trapezoid rule at
    spacing 1/2 is off by a factor of e^{-78}. Only the remainder beside 1 is integrated, as for one example.
    """
    if order * values[-1] > _WIDEST:
        return float(full_batch(order, values[-1]))
    z = np.arange(-12.0, order * values[-1] + 12.0, 0.5)
    logs = np.empty_like(z)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        for start in range(0, z.size, 256):
            part = z[start : start + 256]
            exponents = values[:, None] * part - (values**2 / 2)[:, None]
            log_base = np.logaddexp.reduce(exponents + log_weights[:, None], axis=0)
            parts = np.where(
                exponents < 1,
                np.exp(log_weights)[:, None] * np.expm1(exponents),
                np.exp(exponents + log_weights[:, None]) - np.exp(log_weights)[:, None],
            )
            x = np.where(log_base > 1, np.expm1(log_base), parts.sum(axis=0))
            logs[start : start + 256] = log_remainder(order, log_base, x) - part**2 / 2
    return float(softplus(np.logaddexp.reduce(logs) + np.log(0.5) - 0.5 * np.log(2 * np.pi)))


def _bernoulli_sum(sizes: Floats, rate: float) -> tuple[Floats, Floats]:
    """Values and log-probabilities that bound the law of Σ b_x size_x, b_x drawn with probability q.

    Sizes are rounded up to a grid and convolved; neighboring values are then merged into the largest of
    them. The moment grows with every value, so both steps keep it a bound. Where the upper tail
    underflows in float64 it is replaced by its Chernoff bound.
    """
    cell = float(sizes.mean()) / _FINE_CELLS
    jumps = np.ceil(sizes / cell * (1 - 1e-12)).astype(np.int64)
    law = np.zeros(int(jumps.sum()) + 1)
    reached = np.zeros(law.size, bool)
    law[0], reached[0], top = 1.0, True, 0
    for jump in jumps:
        reached[jump : jump + top + 1] |= reached[: top + 1].copy()
        drawn = law[: top + 1] * rate
        law[: top + 1] *= 1 - rate
        law[jump : jump + top + 1] += drawn
        top += int(jump)
    first, last = _merged(top)
    with np.errstate(divide="ignore"):
        log_mass = np.log(np.add.reduceat(law, first))
    tail = (log_mass < _FAINTEST) & np.logical_or.reduceat(reached, first)
    if tail.any():
        log_mass[tail] = _chernoff(jumps, rate, first[tail])
    return last * np.float64(cell), np.asarray(log_mass, dtype=np.float64)


def _merged(top: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last of the intervals of 0..top whose ends grow geometrically."""
    ends = np.unique(np.ceil(_COARSE ** np.arange(np.log(top) / np.log(_COARSE) + 1)).astype(np.int64))
    last = np.concatenate([[0], ends[ends < top], [top]])
    return np.concatenate([[0], last[:-1] + 1]), last


def _chernoff(jumps: NDArray[np.int64], rate: float, at_least: NDArray[np.int64]) -> Floats:
    """ln P(Σ b_x jump_x ≥ v) ≤ min_θ Σ_x ln(1 − q + q e^{θ jump_x}) − θv."""
    steepest = (60 - np.log(rate)) / jumps.min()
    tilts = np.geomspace(1e-2 / jumps.max(), max(steepest, 1.0 / jumps.max()), 256)
    kinds, counts = np.unique(jumps, return_counts=True)
    log_means = np.logaddexp(np.log1p(-rate), np.log(rate) + tilts[:, None] * kinds) @ counts
    return np.asarray((log_means[:, None] - tilts[:, None] * at_least).min(axis=0))


@dataclass(frozen=True)
class Independent:
    """The paper's per-step group term: E_{B′} ln E_B exp(−Δ_a/2), batches of D and D′ drawn independently.

    Args:
        gram: inner products of mini-batch gradients over σ², `with_rows` of them from D, the others from D′.
        with_rows: number of mini-batches from D.
        draws: number of tuples of batches of D for each batch of D′; the paper takes one of each.
        seed: random seed of the tuples.
    """

    gram: Floats
    with_rows: int
    draws: int
    seed: int

    def log_moment(self, order: int) -> float:
        if order < 2:
            return 0.0
        without = range(self.with_rows, len(self.gram))
        return float(np.mean([self._one(order, j) for j in without]))

    def _one(self, order: int, j: int) -> float:
        """ln E_B of Σ_{i<k} ⟨U_i − U′, U_k − U′⟩ for the batch j of D′, centered on it."""
        inner = self.gram[: self.with_rows, : self.with_rows]
        cross = self.gram[: self.with_rows, j]
        centered = inner - cross[:, None] - cross[None, :] + self.gram[j, j]
        rng = np.random.default_rng((self.seed, order, j))
        return float(log_mean_exp(_pair_sums(centered, rng, self.draws, order)))


def _pair_sums(gram: Floats, rng: np.random.Generator, draws: int, order: int) -> Floats:
    """Σ_{i<j} K[I_i, I_j] for tuples I of rows drawn uniformly, distinct where the pool is large enough."""
    chosen = _tuples(rng, len(gram), draws, order)
    pairs = gram[chosen[:, :, None], chosen[:, None, :]]
    both = pairs.sum(axis=(1, 2)) - np.einsum("nii->n", pairs)
    return np.asarray(both / 2)


def _tuples(rng: np.random.Generator, size: int, draws: int, order: int) -> NDArray[np.int64]:
    chosen = rng.integers(size, size=(draws, order))
    if order > size:
        return chosen
    if order**2 >= size:
        return np.argsort(rng.random((draws, size)), axis=1)[:, :order]
    while True:  # few rows repeat an index; draw those again
        again = (np.diff(np.sort(chosen, axis=1), axis=1) == 0).any(axis=1)
        if not again.any():
            return chosen
        chosen[again] = rng.integers(size, size=(int(again.sum()), order))
