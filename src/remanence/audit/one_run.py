"""A lower bound on ε from one training run whose canaries were included by fair coins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from remanence.errors import InputError

FEWEST = 10
"""With ten canaries, ten correct guesses of ten prove ε ≥ 0.6; with six or fewer, nothing can be proved."""
SHARES = (1.0, 0.5, 0.25, 0.125)
"""Shares of the canaries that are guessed, chosen before anything is seen; the error is divided among them."""
CONFIDENCE = 0.95
_PRECISION = 1e-6
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OneRunBound:
    """What one run proves.

    Args:
        epsilon: with the stated confidence, training is not (ε', δ)-differentially private for any ε' below this.
        canaries: number of canaries.
        guesses: number of canaries that were guessed; the others were left open.
        correct: number of correct guesses.
        largest: the bound that this number of canaries could have proved with every guess correct.
    """

    epsilon: float
    canaries: int
    guesses: int
    correct: int
    largest: float

    def sentence(self) -> str:
        """What was guessed, and what could have been proved."""
        proved = f"ε ≥ {self.epsilon:.2f}" if self.epsilon else "nothing"
        return (
            f"{self.correct} of {self.guesses} guesses about {self.canaries} canaries are right, which proves "
            f"{proved}; with every guess right it would be ε ≥ {self.largest:.2f}."
        )


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    r"""The largest probability of this many correct guesses or more, over all (ε, δ)-private training algorithms.

    Formula: with :math:`q = e^ε / (1 + e^ε)`, :math:`β = P[B(r, q) ≥ v]` and :math:`α = \max_i P[v > B(r, q) ≥ v - i]
    / i` for :math:`r` guesses, :math:`v` of them correct: :math:`\min(1, β + 2 m δ α)`.

    Args:
        canaries: m, each of which was included by an independent fair coin.
        guesses: r, the canaries that the attacker guesses; for the others he abstains.
        correct: v.
        epsilon: ε of the hypothesis.
        delta: δ of the hypothesis.

    Source: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023, Theorem 5.2 and the
    code in appendix D.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InputError(
            f"Expected `correct` ≤ `guesses` ≤ `canaries`; got {correct}, {guesses} and {canaries}."
        )
    if epsilon < 0 or not 0 <= delta <= 1:
        raise InputError(f"Expected `epsilon` ≥ 0 and `delta` in [0, 1]; got {epsilon} and {delta}.")
    accuracy = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(correct - 1, guesses, accuracy))
    if delta == 0 or correct == 0:
        return min(1.0, beta)
    missing = np.arange(1, correct + 1)
    below = np.cumsum(binom.pmf(correct - missing, guesses, accuracy))
    return min(1.0, beta + 2 * canaries * delta * float((below / missing).max()))


def lower_bound(
    canaries: int, guesses: int, correct: int, *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> float:
    """The largest ε that is refuted: every smaller one makes so many correct guesses too unlikely; 0 if none is."""
    error = 1 - confidence
    if p_value(canaries, guesses, correct, 0.0, delta) >= error:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(canaries, guesses, correct, high, delta) < error:
        low, high = high, 2 * high
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if p_value(canaries, guesses, correct, middle, delta) < error:
            low = middle
        else:
            high = middle
    return low


def one_run_bound(
    signal: Floats, included: NDArray[np.bool_], *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> OneRunBound:
    """Guess who was included from one signal per canary, and say what the guesses prove.

    The canaries with the highest signals are guessed to be included, as many with the lowest to be left out. How many
    to guess is not known in advance, so each of `SHARES` is tried, with a quarter of the error each.

    Args:
        signal: [m] larger for examples that the model knows better, such as the log-odds of the true class.
        included: [m] whether the coin included the canary in training.
        delta: δ of the guarantee that is refuted.
        confidence: probability that the bound is right.

    Departs from the paper, which reports the best of several numbers of guesses without correction.
    """
    if len(signal) != len(included):
        raise InputError(
            f"Expected one signal per canary; got {len(signal)} signals for {len(included)} canaries."
        )
    if len(included) < FEWEST:
        raise InputError(
            f"A lower bound on ε from one run needs at least {FEWEST} canaries; got {len(included)}. With fewer, even "
            "perfect guesses prove next to nothing; a bound of 0 would not mean that nothing leaks."
        )
    divided, count = 1 - (1 - confidence) / len(SHARES), len(included)
    order = np.argsort(signal, kind="stable")
    bounds = []
    for share in SHARES:
        side = max(1, int(share * count / 2))
        correct = int(included[order[-side:]].sum() + (~included[order[:side]]).sum())
        epsilon, largest = (
            lower_bound(count, 2 * side, right, delta=delta, confidence=divided)
            for right in (correct, 2 * side)
        )
        bounds.append(OneRunBound(epsilon, count, 2 * side, correct, largest))
    best = max(bounds, key=lambda bound: bound.epsilon)
    return replace(best, largest=max(bound.largest for bound in bounds))
