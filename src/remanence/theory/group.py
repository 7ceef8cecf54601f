"""Group privacy loss: how far a whole forget set changes the distribution of the trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remanence.errors import InputError
from remanence.theory.checkpoint_rules import Rule, rows_for_steps
from remanence.theory.composition import COMPOSITIONS, PATHWISE_GRID, Composition, composed_loss
from remanence.theory.group_moments import Coupled, CoupledUpper, Independent
from remanence.theory.justification import Justification, violated_assumptions
from remanence.theory.privacy_loss import Scale, noise_unit, with_sigma
from remanence.theory.sampled_gaussian import Floats, check_alpha, check_exponent
from remanence.types import Bound, Mechanism, Status, check_choice

GroupMethod = Literal["coupled", "upper", "independent"]
METHODS = ("coupled", "upper", "independent")


def group_loss(
    grams: Sequence[ArrayLike],
    *,
    steps: ArrayLike,
    mechanism: Mechanism,
    alpha: float = 8.0,
    sigma: float | None = None,
    method: GroupMethod = "coupled",
    composition: Composition = "pathwise",
    rule: Rule = "right",
    p: float | None = None,
    scale: Scale = "mechanism",
    with_rows: int | None = None,
    pool: int = 512,
    draws: int = 4096,
    seed: int = 0,
) -> Bound:
    """A bound on D_α(trained with the forget set ‖ trained without it), from one Gram matrix per checkpoint.

    Statement (`coupled`, one step):
        ln h^{(a)} ≤ ln E exp(Σ_{i<j} b_i′ G b_j / (Bσ)²),  b_1..b_a independent Bernoulli(q)^m, a whole.
    `upper` bounds that expectation without sampling. `independent`, the paper's:
        E_{B′} ln E_{B_1..B_a} exp(−Δ_a / 2σ²). Steps compose as for a single example.

    Symbols: `grams[i]` = G, [m, m] inner products of the forget set's gradients at checkpoint i; for
        `independent` the inner products of mini-batch gradients, the first `with_rows` of them from D, the
        others from D′ = D without the forget set, on the scale of the noise.

    Args:
        grams: one matrix per checkpoint.
        steps: the checkpoints, as optimizer steps already taken.
        mechanism: the mechanism of the training.
        alpha: the order α > 1.
        sigma: a noise level to assume instead of the mechanism's.
        method: `coupled`, `upper` or `independent`.
        composition: as for `privacy_loss`.
        rule: as for `privacy_loss`.
        p: the Hölder exponent; by default 100 for `pathwise`, 3T for `stepwise` and `printed`.
        scale: `raw` omits the division by the batch size.
        with_rows: for `independent`, the number of rows that come from D.
        pool: number of mini-batches to draw for `coupled`.
        draws: number of tuples of mini-batches to average over.
        seed: random seed of the draws.

    Assumptions: as for `privacy_loss`. Sampled means of exponentials are biased low, badly so where the
        exponent spreads over more than about 3: such values rank forget sets and are no bounds.

    Departs from the paper: its batches of D and D′ are independent, so its bound stays above
        a/(2σ²) tr Cov(batch gradient) even when nothing is forgotten; coupling the retained part of the batch
        cancels it and leaves only the forget set's gradients (docs/theory/group-loss.md).

    Source: the paper, Theorem "Group Privacy" of the appendix; Thudi et al. 2024, Theorem 3.6.

    Checked by: tests/oracles/test_theory_group.py
    """
    check_alpha(alpha)
    check_choice("method", method, METHODS)
    check_choice("composition", composition, COMPOSITIONS)
    mechanism = with_sigma(mechanism, sigma)
    exponent = _exponent(p, composition, mechanism.steps)
    checkpoints = np.asarray(steps)
    matrices = _checked(grams, checkpoints)
    if method == "independent":
        rows = _checked_rows(with_rows, len(matrices[0]))
        parts: list[_Step] = [Independent(gram / mechanism.sigma**2, rows, draws, seed) for gram in matrices]
    else:
        rate, unit = mechanism.sampling_rate, noise_unit(mechanism, scale)
        scaled = [gram / unit**2 for gram in matrices]
        parts = [
            CoupledUpper(gram, rate) if method == "upper" else Coupled(gram, rate, pool, draws, seed)
            for gram in scaled
        ]
    full = mechanism.sampling_rate == 1 and method != "independent"
    moments = _GroupMoments(parts, paired=rule == "upper", full=full)
    step_rows = rows_for_steps(rule, checkpoints, mechanism.steps)
    value = float(composed_loss(moments, step_rows, composition, alpha, exponent)[0])
    justification = _justify(mechanism, method, composition).for_values(np.array([value]))
    return Bound(value, justification.status, justification.reasons, f"group loss, {method}, {composition}")


def published_group_loss(loss: Callable[[float], float], size: int, *, alpha: float = 8.0) -> Bound:
    """The published worst-case bound for a group: one point's loss at an order that grows with the group.

    Statement:
        D_α(group of 2^c) ≤ Π_{i<c} (1 + (α_i − 1/2)/(α_i − 1)) · P(2^c α),  α_i = 2^i α.

    Symbols: `loss` = P as a function of the order, for any single point; `size` = |D_F| ≤ 2^c.

    Assumptions: `loss` bounds every point of the group, also after others have been removed.

    Departs from the paper: it only cites this bound; it is here as the baseline.

    Source: Chien et al. 2024, Corollary 3.4; Mironov 2017, Propositions 2 and 11.

    Checked by: tests/oracles/test_theory_group.py
    """
    check_alpha(alpha)
    if size < 0 or int(size) != size:
        raise InputError(f"`size` must be a whole number of at least 0; got {size}.")
    if size == 0:
        return Bound(0.0, Status.CERTIFICATE, ("Nothing is forgotten.",), "group loss, published")
    factor, order = 1.0, alpha
    for _ in range(int(np.ceil(np.log2(size)))):
        factor *= 1 + (order - 0.5) / (order - 1)
        order *= 2
    value = factor * loss(order)
    reason = f"One point's loss at order {order:g}, times {factor:.4g}; as valid as that loss."
    justification = Justification(Status.ESTIMATE, (reason,)).for_values(np.array([value]))
    return Bound(value, justification.status, justification.reasons, "group loss, published")


class _Step(Protocol):
    def log_moment(self, order: int) -> float: ...


@dataclass(frozen=True)
class _GroupMoments:
    """The moments of one group in the form of a run with a single example; whole orders are cached."""

    parts: Sequence[_Step]
    paired: bool
    full: bool
    cache: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, len(self.parts) + self.paired, 1

    def __call__(self, order: float, rows: NDArray[np.int64]) -> Floats:
        values = [max(self._at(order, end) for end in self._ends(int(row))) for row in rows]
        return np.asarray(values)[None, :, None]

    def _ends(self, row: int) -> tuple[int, ...]:
        return (max(row - 1, 0), min(row, len(self.parts) - 1)) if self.paired else (row,)

    def _at(self, order: float, row: int) -> float:
        """Linear between whole orders: ln h is convex in the order."""
        if self.full:
            return order * (order - 1) / 2 * self._whole(2, row)
        low = int(np.floor(order))
        share = order - low
        value = (1 - share) * self._whole(low, row)
        return value + share * self._whole(low + 1, row) if share else value

    def _whole(self, order: int, row: int) -> float:
        if order > 512:
            raise InputError(f"A group loss needs orders up to {order}; raise `p` or lower `alpha`.")
        if (order, row) not in self.cache:
            self.cache[order, row] = self.parts[row].log_moment(order)
        return self.cache[order, row]


def _exponent(p: float | None, composition: Composition, steps: int) -> float:
    if p is None:
        return PATHWISE_GRID[-1] if composition == "pathwise" else 3.0 * steps
    check_exponent(p)
    return p


def _justify(mechanism: Mechanism, method: str, composition: str) -> Justification:
    violated = violated_assumptions(mechanism)
    if composition == "printed":
        violated += ("The composition as printed is not a theorem.",)
    if violated:
        return Justification(Status.HEURISTIC, violated)
    reasons = {
        "coupled": "The expectation over batches is a sampled mean of exponentials, biased low.",
        "upper": "The expectation over batches is bounded, not sampled; the gradients are one run's.",
        "independent": "Sampled, biased low, and never below the spread of mini-batch gradients: "
        "it hardly depends on the forget set.",
    }
    return Justification(Status.ESTIMATE, ("The gradients were observed along one run.", reasons[method]))


def _checked(grams: Sequence[ArrayLike], steps: NDArray[Any]) -> list[Floats]:
    matrices = [np.asarray(gram, dtype=np.float64) for gram in grams]
    if steps.ndim != 1 or len(steps) == 0 or steps.dtype.kind not in "iu":
        raise InputError(f"`steps` must be a non-empty row of whole numbers; got {steps!r}.")
    if steps[0] < 0 or np.any(np.diff(steps) <= 0):
        raise InputError(f"`steps` must increase from 0 or above; got {steps.tolist()}.")
    if len(matrices) != len(steps):
        raise InputError(f"`grams` must hold one matrix per checkpoint, {len(steps)}; got {len(matrices)}.")
    for i, matrix in enumerate(matrices):
        if matrix.size == 0:
            matrices[i] = matrix = np.zeros((0, 0))
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape != matrices[0].shape:
            raise InputError(
                f"`grams` must be square and of one size; matrix {i} has shape {matrix.shape}, "
                f"the first {matrices[0].shape}."
            )
        if not np.all(np.isfinite(matrix)):
            raise InputError(f"`grams` must be finite; matrix {i} at step {steps[i]} is not.")
        scale = float(np.abs(matrix).max(initial=0.0))
        if np.any(np.diag(matrix) < 0) or np.any(np.abs(matrix - matrix.T) > 1e-5 * scale):
            raise InputError(
                f"`grams` must be inner products (symmetric, squares on the diagonal); matrix {i} is not."
            )
    return matrices


def _checked_rows(with_rows: int | None, size: int) -> int:
    if with_rows is None or not 0 < with_rows < size:
        raise InputError(
            f"`with_rows` must say how many of the {size} mini-batches come from D (the others from D′), "
            f"between 1 and {size - 1}; got {with_rows}."
        )
    return with_rows
