"""Per-instance privacy loss: how far one example moves the law of the trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remanence.errors import InputError
from remanence.theory.checkpoints import RULES, Rule, Stand, norm_rows, stands_for
from remanence.theory.composition import COMPOSITIONS, PATHWISE_GRID, Composition, RatioMoments, composed_loss
from remanence.theory.grounds import Grounds, faults, grounds_of
from remanence.theory.sampled_gaussian import check_alpha, log_moment
from remanence.types import Bound, Ids, Mechanism, NormTrace, Scores, Status, check_choice, check_positive

Scale = Literal["mechanism", "raw"]
Floats = NDArray[np.float64]
_LARGEST_RATIO = 1e300
"""Ratios beyond float range are brought back to this; their loss is infinite all the same."""
Source = NormTrace | Sequence[NormTrace] | ArrayLike


def privacy_loss(
    trace: Source,
    *,
    steps: ArrayLike | None = None,
    mechanism: Mechanism | None = None,
    ids: ArrayLike | None = None,
    alpha: float = 8.0,
    sigma: float | None = None,
    composition: Composition = "pathwise",
    rule: Rule = "right",
    p: float | Sequence[float] | None = None,
    scale: Scale = "mechanism",
    everywhere: bool = False,
) -> Scores:
    """Each example's bound on D_α(model trained with it ‖ model trained without it), in nats.

    Statement (`pathwise`, the default):
        D_α ≤ 1/(p(α−1)) ln E_path exp((p−1) Σ_t ln A_{a′}(q, ρ_t)),  a′ = 1 + (α−1) p/(p−1).
    `stepwise`: Σ_t (1/(α−1)) ((p−1)/p)^{T−t} (1/p) ln E A_{a_t}^p,  a_t = 1 + (α−1)(p/(p−1))^{T−t};
        the first step takes the power 1 instead of p.
    `printed`: the paper's Definition as it stands, orders rounded up, for comparison.
    `accountant`: p → ∞, Σ_t D_α(ρ_t), of several runs the largest.

    Symbols: `alpha` = α, `p` = p, `sigma` = σ, ρ_t = ‖g(x, w_{t−1})‖ / (Bσ) (or / σ for noise on the sum).

    Args:
        trace: a NormTrace; several, one a training run, for an expectation over runs; or norms as an array
            [N, n] or [R, N, n], with `steps`, `mechanism` and, if wanted, `ids`.
        steps: with an array, the N checkpoints as optimizer steps already taken.
        mechanism: with an array, how training went.
        ids: with an array, the names of the n examples; 0..n−1 by default.
        alpha: the order α > 1.
        sigma: a noise level to suppose in place of the mechanism's.
        composition: how steps add up.
        rule: which checkpoint stands for the steps between two; `right` is the paper's, `upper` the larger.
        p: the Hölder exponent, or several to take the best of for each example. By default the grid
            2, 3, 5, 10, 30, 100 for `pathwise` and 3T for `stepwise` and `printed`.
        scale: `raw` leaves out the division by B, as the paper's own figures do.
        everywhere: the norms are bounds that hold for every weight vector, not observations.

    Assumptions: Poisson sampling, fixed denominator, real Gaussian noise; the status and its reasons say
        which of them fail. Where the mechanism has a `max_norm`, no value exceeds the worst-case accountant's
        (`printed` excepted, which is kept as it is).

    Departs from the paper: orders grow towards the start of training, the factor 3T − 1 is gone, the gradient
        is over B, and one Hölder step over the whole path replaces T of them (docs/theory/privacy-loss.md).

    Source: the paper, Definition "Per-Instance Privacy Loss"; Thudi et al. 2024, Theorems 3.2 and 3.3.

    Checked by: tests/oracles/test_theory_privacy_loss.py, tests/oracles/test_theory_toys.py
    """
    runs = _as_runs(trace, steps, mechanism, ids)
    setting = _Setting(runs, alpha, sigma, composition, rule, scale, everywhere)
    exponents = setting.exponents(p)
    values = np.min([setting.values(exponent) for exponent in exponents], axis=0)
    capped = np.zeros(values.shape, bool)
    if setting.mechanism.max_norm is not None and composition != "printed":
        cap = worst_case_loss(setting.mechanism, alpha=alpha, scale=scale).value
        capped = values >= cap
        values = np.minimum(values, cap)
    grounds = setting.grounds(all_capped=bool(capped.all())).weigh(values)
    params: dict[str, Any] = {
        "alpha": float(alpha),
        "sigma": float(setting.mechanism.sigma),
        "composition": composition,
        "rule": rule,
        "p": None if composition == "accountant" else exponents[0] if len(exponents) == 1 else exponents,
        "scale": scale,
        "runs": len(runs),
        "capped": int(capped.sum()),
    }
    return Scores("privacy_loss", runs[0].ids, values, params, grounds.status, grounds.reasons)


def privacy_losses(
    trace: Source, *, alphas: Sequence[float], sigmas: Sequence[float | None] = (None,), **options: Any
) -> dict[tuple[float, float], Scores]:
    """`privacy_loss` at every pair of the given alphas and sigmas, keyed by (alpha, sigma).

    Checked by: tests/unit/theory/test_privacy_loss.py
    """
    table = {}
    for alpha in alphas:
        for sigma in sigmas:
            scores = privacy_loss(trace, alpha=alpha, sigma=sigma, **options)
            table[float(alpha), float(scores.params["sigma"])] = scores
    return table


def worst_case_loss(mechanism: Mechanism, *, alpha: float = 8.0, scale: Scale = "mechanism") -> Bound:
    """The plain accountant at the mechanism's `max_norm`: T · D_α(q, max_norm / (Bσ)).

    Statement:
        D_α(ν_{T,D} ‖ ν_{T,D′}) ≤ T ln A_α(q, C/(Bσ)) / (α − 1).

    Symbols: C = `mechanism.max_norm`.

    Assumptions: as for `privacy_loss`; C bounds every example's gradient at every weight vector.

    Departs from the paper: it is not in it; it is what a per-instance loss must never exceed.

    Source: Mironov 2017, composition of Rényi differential privacy.

    Checked by: tests/oracles/test_theory_privacy_loss.py
    """
    check_alpha(alpha)
    if mechanism.max_norm is None:
        reason = "No bound on the gradient norm is given (`max_norm`), so there is no worst case."
        return Bound(np.inf, Status.VACUOUS, (reason,), "accountant")
    ratio = mechanism.max_norm / noise_unit(mechanism, scale)
    value = mechanism.steps * float(log_moment(alpha, mechanism.sampling_rate, ratio)) / (alpha - 1)
    wrong = faults(mechanism)
    sound = ("Poisson sampling, fixed denominator, real noise, and a norm bound for every weight vector.",)
    grounds = Grounds(Status.HEURISTIC if wrong else Status.CERTIFICATE, wrong or sound)
    grounds = grounds.weigh(np.array([value]))
    return Bound(value, grounds.status, grounds.reasons, "accountant")


@dataclass(frozen=True)
class _Setting:
    """One question, checked: the runs and everything that shapes the sum over their steps."""

    runs: Sequence[NormTrace]
    alpha: float
    sigma: float | None
    composition: Composition
    rule: Rule
    scale: Scale
    everywhere: bool

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if self.sigma is not None:
            check_positive("sigma", self.sigma)
        check_choice("composition", self.composition, COMPOSITIONS)
        check_choice("rule", self.rule, RULES)
        check_choice("scale", self.scale, ("mechanism", "raw"))

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism under the noise that is supposed; noise other than the real one is assumed noise."""
        real = self.runs[0].mechanism
        if self.sigma is None or self.sigma == real.sigma:
            return real
        return replace(real, sigma=self.sigma, assumed=True)

    def exponents(self, p: float | Sequence[float] | None) -> tuple[float, ...]:
        """The values of p to take the best of."""
        if self.composition == "accountant":
            return (np.inf,)
        if p is None:
            p = PATHWISE_GRID if self.composition == "pathwise" else 3.0 * self.mechanism.steps
        chosen = tuple(float(each) for each in np.atleast_1d(p))
        for each in chosen:
            if not (np.isfinite(each) and each > 1):
                raise InputError(f"`p` must be a finite number above 1; got {each}.")
        # With one run every composition but the printed one falls as p grows: the largest is the best.
        return (max(chosen),) if len(self.runs) == 1 and self.composition != "printed" else chosen

    def values(self, p: float) -> Floats:
        """The loss of every example at one p."""
        moments, stands = self._moments
        return composed_loss(moments, stands, self.composition, self.alpha, p)

    def grounds(self, *, all_capped: bool) -> Grounds:
        """What the values are worth."""
        found = grounds_of(
            self.mechanism,
            composition=self.composition,
            rule=self.rule,
            runs=len(self.runs),
            everywhere=self.everywhere,
            capped=all_capped,
            n_checkpoints=len(self.runs[0].steps),
        )
        if self.scale == "raw" and self.mechanism.reduction == "mean":
            note = (
                "Norms are not divided by the batch size, as in the paper's figures: larger by that factor."
            )
            return Grounds(found.status, (*found.reasons, note))
        return found

    @cached_property
    def _moments(self) -> tuple[RatioMoments, tuple[Stand, ...]]:
        """Every run's ratios by row, and which row stands for which step."""
        unit, total = noise_unit(self.mechanism, self.scale), self.mechanism.steps
        if self.everywhere:
            rows = [run.norms.max(axis=0, keepdims=True) for run in self.runs]
            stands: tuple[Stand, ...] = (Stand(np.zeros(total, np.int64), 1.0),)
        else:
            rows = [norm_rows(self.rule, run.norms) for run in self.runs]
            stands = stands_for(self.rule, self.runs[0].steps, total)
        ratios = np.stack(rows, dtype=np.float64)
        with np.errstate(over="ignore"):
            ratios /= unit
        np.minimum(ratios, _LARGEST_RATIO, out=ratios)
        return RatioMoments(ratios, self.mechanism.sampling_rate), stands


def noise_unit(mechanism: Mechanism, scale: Scale) -> float:
    """The norm whose ratio is 1."""
    divide = mechanism.reduction == "mean" and scale == "mechanism"
    return mechanism.sigma * (mechanism.batch_size if divide else 1.0)


def _as_runs(
    source: Source, steps: ArrayLike | None, mechanism: Mechanism | None, ids: ArrayLike | None
) -> tuple[NormTrace, ...]:
    """The runs as traces of the same examples, checkpoints and mechanism."""
    if isinstance(source, NormTrace):
        return (source,)
    if isinstance(source, Sequence) and source and all(isinstance(each, NormTrace) for each in source):
        return _checked_runs(tuple(each for each in source if isinstance(each, NormTrace)))
    norms = np.asarray(source, dtype=np.float64)
    if norms.ndim not in (2, 3) or norms.size == 0:
        raise InputError(
            "`norms` must be [checkpoints, examples] or [runs, checkpoints, examples]; "
            f"got shape {norms.shape}."
        )
    if steps is None or mechanism is None:
        missing = "steps" if steps is None else "mechanism"
        raise InputError(f"`{missing}` must come with norms given as an array; got None.")
    names: Ids = np.arange(norms.shape[-1]) if ids is None else np.asarray(ids)
    each_run = norms[None] if norms.ndim == 2 else norms
    return tuple(NormTrace(names, np.asarray(steps), run, mechanism) for run in each_run)


def _checked_runs(runs: tuple[NormTrace, ...]) -> tuple[NormTrace, ...]:
    first = runs[0]
    for i, run in enumerate(runs[1:], start=1):
        for name, same in (
            ("ids", np.array_equal(run.ids, first.ids)),
            ("steps", np.array_equal(run.steps, first.steps)),
            ("mechanism", run.mechanism == first.mechanism),
        ):
            if not same:
                raise InputError(
                    f"Every trace must have the same {name}; trace {i} differs from trace 0. "
                    "Record all runs with one configuration."
                )
    return runs
