"""Per-instance privacy loss: how far one example changes the distribution of the trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remanence.errors import InputError
from remanence.theory.checkpoint_rules import RULES, Rule, StepRows, norm_rows, rows_for_steps
from remanence.theory.composition import COMPOSITIONS, PATHWISE_GRID, Composition, RatioMoments, composed_loss
from remanence.theory.justification import (
    Justification,
    interpolation_reasons,
    justify_loss,
    violated_assumptions,
)
from remanence.theory.sampled_gaussian import check_alpha, check_exponent, log_moment
from remanence.types import Bound, Ids, Mechanism, Scores, Status, Trace, check_choice, check_positive

Scale = Literal["mechanism", "raw"]
Floats = NDArray[np.float64]
_LARGEST_RATIO = 1e300
"""Larger ratios are clipped to this; their loss is infinite all the same."""
Source = Trace | Sequence[Trace] | ArrayLike


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
    `printed`: the paper's Definition as printed, orders rounded up, for comparison.
    `accountant`: p → ∞, Σ_t D_α(ρ_t), of several runs the largest.

    Symbols: `alpha` = α, `p` = p, `sigma` = σ, ρ_t = ‖g(x, w_{t−1})‖ / (Bσ) (or / σ for noise on the sum).

    Args:
        trace: a Trace; several, one per training run, for an expectation over runs; or norms as an array
            [N, n] or [R, N, n], with `steps`, `mechanism` and optionally `ids`.
        steps: with an array, the N checkpoints as optimizer steps already taken.
        mechanism: with an array, the mechanism of the training.
        ids: with an array, the ids of the n examples; 0..n−1 by default.
        alpha: the order α > 1.
        sigma: a noise level to assume instead of the mechanism's.
        composition: how the steps are composed.
        rule: which checkpoint is used for the steps between two; `right` is the paper's, `upper` the larger norm.
        p: the Hölder exponent, or several, of which the best is taken for each example. By default the grid
            2, 3, 5, 10, 30, 100 for `pathwise` and 3T for `stepwise` and `printed`.
        scale: `raw` omits the division by B, as the paper's figures do.
        everywhere: the norms are bounds that hold for every weight vector, not observations.

    Assumptions: Poisson sampling, fixed denominator, real Gaussian noise; the status and its reasons say
        which of them fail. Where the mechanism has a `max_norm`, no value exceeds the worst-case accountant's
        (except `printed`, which is reproduced as it is).

    Departs from the paper: orders grow towards the start of training, the factor 3T − 1 is gone, the gradient
        is divided by B, and one Hölder step over the whole path replaces T of them (docs/theory/privacy-loss.md).

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
    justification = setting.justification(all_capped=bool(capped.all())).for_values(values)
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
    return Scores("privacy_loss", runs[0].ids, values, params, justification.status, justification.reasons)


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

    Departs from the paper: it is not part of it; a per-instance loss must never exceed it.

    Source: Mironov 2017, composition of Rényi differential privacy.

    Checked by: tests/oracles/test_theory_privacy_loss.py
    """
    check_alpha(alpha)
    if mechanism.max_norm is None:
        reason = "No bound on the gradient norm is given (`max_norm`), so there is no worst case."
        return Bound(np.inf, Status.VACUOUS, (reason,), "accountant")
    ratio = mechanism.max_norm / noise_unit(mechanism, scale)
    value = mechanism.steps * float(log_moment(alpha, mechanism.sampling_rate, ratio)) / (alpha - 1)
    violated = violated_assumptions(mechanism)
    sound = ("Poisson sampling, fixed denominator, real noise, and a norm bound for every weight vector.",)
    status = Status.HEURISTIC if violated else Status.CERTIFICATE
    justification = Justification(status, violated or sound).for_values(np.array([value]))
    return Bound(value, justification.status, justification.reasons, "accountant")


@dataclass(frozen=True)
class _Setting:
    """The checked arguments of `privacy_loss`: the runs and the options of the sum over their steps."""

    runs: Sequence[Trace]
    alpha: float
    sigma: float | None
    composition: Composition
    rule: Rule
    scale: Scale
    everywhere: bool

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_choice("composition", self.composition, COMPOSITIONS)
        check_choice("rule", self.rule, RULES)
        check_choice("scale", self.scale, ("mechanism", "raw"))

    @property
    def mechanism(self) -> Mechanism:
        return with_sigma(self.runs[0].mechanism, self.sigma)

    def exponents(self, p: float | Sequence[float] | None) -> tuple[float, ...]:
        """The values of p, of which the best is taken."""
        if self.composition == "accountant":
            return (np.inf,)
        if p is None:
            p = PATHWISE_GRID if self.composition == "pathwise" else 3.0 * self.mechanism.steps
        chosen = tuple(float(exponent) for exponent in np.atleast_1d(p))
        for exponent in chosen:
            check_exponent(exponent)
        # With one run every composition but the printed one decreases in p: the largest p is the best.
        return (max(chosen),) if len(self.runs) == 1 and self.composition != "printed" else chosen

    def values(self, p: float) -> Floats:
        """The loss of every example at one p."""
        moments, step_rows = self._moments
        return composed_loss(moments, step_rows, self.composition, self.alpha, p)

    def justification(self, *, all_capped: bool) -> Justification:
        justification = justify_loss(
            self.mechanism,
            composition=self.composition,
            rule=self.rule,
            runs=len(self.runs),
            everywhere=self.everywhere,
            capped=all_capped,
            n_checkpoints=len(self.runs[0].steps),
            interpolated=interpolation_reasons(*self.runs),
        )
        if self.scale == "raw" and self.mechanism.reduction == "mean":
            note = (
                "Norms are not divided by the batch size, as in the paper's figures: larger by that factor."
            )
            return Justification(justification.status, (*justification.reasons, note))
        return justification

    @cached_property
    def _moments(self) -> tuple[RatioMoments, tuple[StepRows, ...]]:
        """Every run's ratios by row, and which row is used for which step."""
        unit, total = noise_unit(self.mechanism, self.scale), self.mechanism.steps
        if self.everywhere:
            rows = [run.norms.max(axis=0, keepdims=True) for run in self.runs]
            step_rows: tuple[StepRows, ...] = (StepRows(np.zeros(total, np.int64), 1.0),)
        else:
            rows = [norm_rows(self.rule, run.norms) for run in self.runs]
            step_rows = rows_for_steps(self.rule, self.runs[0].steps, total)
        ratios = np.stack(rows, dtype=np.float64)
        if self.mechanism.clipped and self.mechanism.max_norm is not None:
            np.minimum(ratios, self.mechanism.max_norm, out=ratios)
        with np.errstate(over="ignore"):
            ratios /= unit
        np.minimum(ratios, _LARGEST_RATIO, out=ratios)
        return RatioMoments(ratios, self.mechanism.sampling_rate), step_rows


def with_sigma(mechanism: Mechanism, sigma: float | None) -> Mechanism:
    """The mechanism with this noise; a sigma other than the real one makes it an assumption."""
    if sigma is None or sigma == mechanism.sigma:
        return mechanism
    check_positive("sigma", sigma)
    return replace(mechanism, sigma=sigma, assumed=True)


def noise_unit(mechanism: Mechanism, scale: Scale) -> float:
    """The gradient norm whose ratio is 1."""
    divide = mechanism.reduction == "mean" and scale == "mechanism"
    return mechanism.sigma * (mechanism.batch_size if divide else 1.0)


def _as_runs(
    source: Source, steps: ArrayLike | None, mechanism: Mechanism | None, ids: ArrayLike | None
) -> tuple[Trace, ...]:
    """The runs as traces of the same examples, checkpoints and mechanism."""
    if isinstance(source, Trace):
        return (source,)
    if isinstance(source, Sequence) and source and all(isinstance(run, Trace) for run in source):
        return _checked_runs(tuple(run for run in source if isinstance(run, Trace)))
    norms = np.asarray(source, dtype=np.float64)
    if norms.ndim not in (2, 3) or norms.size == 0:
        raise InputError(
            "`norms` must be [checkpoints, examples] or [runs, checkpoints, examples]; "
            f"got shape {norms.shape}."
        )
    if steps is None or mechanism is None:
        missing = "steps" if steps is None else "mechanism"
        raise InputError(f"`{missing}` must be given together with norms as an array; got None.")
    names: Ids = np.arange(norms.shape[-1]) if ids is None else np.asarray(ids)
    by_run = norms[None] if norms.ndim == 2 else norms
    return tuple(Trace(names, np.asarray(steps), run, mechanism) for run in by_run)


def _checked_runs(runs: tuple[Trace, ...]) -> tuple[Trace, ...]:
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
