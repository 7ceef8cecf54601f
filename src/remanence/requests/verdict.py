"""The verdict on an unlearned model, from signals that did not decide when unlearning stopped.

The *excess* of a model is how much surer it is about the examples than models that were never trained on them, in
log-odds: 0 on average for such models. The verdict is a test on the excess after unlearning, with an error bar that
counts the number of examples, the number of reference models and the differences between them.

This module knows arrays only: the signals of the examples before and after, and what the reference models say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from remanence.errors import InputError
from remanence.forecast import SignalExpectation

Floats = NDArray[np.float64]
DECIDING = "predicted_log_odds"
"""The log-odds of the predicted class need no label, so they are no function of the confidence of the true class,
which decides when unlearning stops."""
SIGNALS = {
    DECIDING: "log-odds of the predicted class, whatever the true one is, beside reference models that were never "
    "trained on each example",
    "log_odds": "log-odds of the true class (minus the loss, if there are no classes), beside the same models",
}
"""Signals of the verdict, relative to test examples that the stopping attack never saw. The first that the task has
must confirm; no other may refute."""
MARGIN = 1.0
"""The largest excess of a forgotten set, in log-odds. Chosen on seeds 10 and 11 of benchmarks/verdicts.py."""
ALPHA = 0.05
"""Largest probability of confirming a set whose excess is the margin or more."""
POWER = 0.7
"""A set is judged only if a model never trained on it would be confirmed with at least this probability."""
FEWEST = 20
"""Fewer examples are not judged: the error bar relies on a mean over many, and was measured for 20 and more."""


class Word(StrEnum):
    """What a signal says about a set."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNJUDGED = "cannot be judged"


@dataclass(frozen=True)
class SignalVerdict:
    """One signal of a set after unlearning.

    Args:
        signal: name of the signal.
        before: the excess before unlearning: how much surer the model is than models never trained on the examples.
        after: the excess after unlearning.
        error: standard error of the excess.
        high: upper end of the one-sided confidence interval of the excess after unlearning.
        power: probability that a model never trained on the examples is confirmed.
        word: what follows for this signal alone.
    """

    signal: str
    before: float
    after: float
    error: float
    high: float
    power: float
    word: Word

    @property
    def low(self) -> float:
        """Lower end of the one-sided confidence interval on the other side."""
        return 2 * self.after - self.high


@dataclass(frozen=True)
class Verdict:
    """The verdict on a set: the deciding signal confirms it, and no other refutes it.

    Args:
        word: the verdict.
        signals: what each signal says; the first one decides.
        margin: the largest excess that counts as forgotten.
        alpha: probability of confirming a set whose excess is the margin, at most.
        looks: number of verdicts on this request so far, this one included; `alpha` is halved with each.
    """

    word: Word
    signals: tuple[SignalVerdict, ...]
    margin: float
    alpha: float
    looks: int = 1

    def sentence(self) -> str:
        """The verdict in one sentence."""
        if not self.signals:
            return (
                "The examples cannot be judged: there is no model that was never trained on them (`remanence "
                "calibrate` trains such models)."
            )
        first, confidence = self.signals[0], f"with a confidence of {100 * (1 - self.alpha):.3g} %"
        if self.word is Word.UNJUDGED:
            return (
                f"The examples cannot be judged: at least {FEWEST} are needed, and a model never trained on them must "
                f"be confirmed with a probability of {POWER:g} or more; here it is {first.power:.2f}."
            )
        refuting = [row for row in self.signals[1:] if row.word is Word.REFUTED]
        row = refuting[0] if first.word is not Word.REFUTED and refuting else first
        surer = (
            f"On these examples the model is surer than models never trained on them by {row.after:+.2f} ± "
            f"{row.error:.2f} ({row.signal}; {row.before:+.2f} before)"
        )
        if self.word is Word.CONFIRMED:
            return f"{surer}: less than {self.margin:g}, {confidence}."
        if row.low > self.margin:
            return f"{surer}: more than {self.margin:g}, {confidence}."
        return f"{surer}; less than {self.margin:g} could not be shown {confidence}."

    def document(self) -> dict[str, Any]:
        """The verdict as JSON values."""
        plain = asdict(self) | {"signals": [asdict(signal) for signal in self.signals]}
        return (
            plain
            | {"meaning": {row.signal: SIGNALS[row.signal] for row in self.signals}}
            | {"sentence": self.sentence()}
        )


def without_models(looks: int = 1) -> Verdict:
    """The verdict where there is no model that was never trained on the examples: they cannot be judged."""
    return Verdict(Word.UNJUDGED, (), MARGIN, ALPHA, looks)


def judge_signals(
    before: Mapping[str, Floats],
    after: Mapping[str, Floats],
    expected: Mapping[str, SignalExpectation],
    *,
    looks: int = 1,
    margin: float = MARGIN,
) -> Verdict:
    """The verdict on a set.

    Args:
        before: by signal, [m] of the model before unlearning.
        after: by signal, [m] of the model after unlearning.
        expected: by signal, what models never trained on the examples say.
        looks: number of verdicts on this request so far, this one included.
        margin: the largest excess that counts as forgotten.
    """
    if not expected:
        raise InputError("`expected` must have at least one signal; got none.")
    alpha = ALPHA / 2 ** (looks - 1)
    rows: list[SignalVerdict] = []
    for name in (name for name in SIGNALS if name in expected):
        excess = Excess.of(before[name], expected[name])
        at_last = excess(after[name])
        tested = _tested(at_last, excess.error, len(before[name]), alpha, margin, decides=not rows)
        rows.append(SignalVerdict(name, excess(before[name]), at_last, excess.error, **tested))
    refuted = any(row.word is Word.REFUTED for row in rows)
    return Verdict(Word.REFUTED if refuted else rows[0].word, tuple(rows), margin, alpha, looks)


def power_of(error: float, *, alpha: float = ALPHA, margin: float = MARGIN) -> float:
    """The probability that a model never trained on a set is confirmed, by the standard error of its excess."""
    return float(norm.cdf(margin / error - norm.isf(alpha)))


def can_be_judged(error: float, size: int) -> bool:
    """Whether a set of this size, whose excess has this standard error, can be judged."""
    return size >= FEWEST and power_of(error) >= POWER


def _tested(
    after: float, error: float, size: int, alpha: float, margin: float, *, decides: bool
) -> dict[str, Any]:
    """The interval, the power and what follows, for a signal that decides or for one that can only refute.

    A further condition can only make a wrong confirmation rarer (an intersection-union test), so that `alpha` needs
    no correction for the number of signals.
    """
    quantile = float(norm.isf(alpha))
    high, power = after + quantile * error, power_of(error, alpha=alpha, margin=margin)
    if size < FEWEST:
        word = Word.UNJUDGED
    elif after - quantile * error > margin:
        word = Word.REFUTED
    elif power < POWER:
        word = Word.UNJUDGED
    elif high < margin:
        word = Word.CONFIRMED
    else:
        word = Word.REFUTED if decides else Word.UNJUDGED
    return {"high": high, "power": power, "word": word}


@dataclass(frozen=True, eq=False)
class Excess:
    """How much surer a model is about some examples than models never trained on them: 0 on average for such models.

    It is the mean of signal − expected with the weights max(level − expected, 0)/σ², where the level is the mean signal
    before unlearning: what can be memorized are examples that models never trained on them are unsure about. The
    weights do not depend on how single examples deviate: every model that is trained further keeps a part of its
    deviations, also on data that it never saw, and that is no memory. The error of the expectations is in both
    factors; it is subtracted: 1/m for each example with an expectation from m models.

    Args:
        weights: [m] of the examples; they sum to one.
        offset: the weighted mean of the signal of models never trained on the examples.
        error: standard error of the excess of such a model.
    """

    weights: Floats
    offset: float
    error: float

    def __call__(self, signal: Floats) -> float:
        """The excess of a model with this signal, [m]."""
        return float((self.weights * signal).sum()) - self.offset

    @classmethod
    def of(cls, before: Floats, expected: SignalExpectation) -> Excess:
        """The excess over these expectations.

        Args:
            before: [m] the signal of the model before unlearning.
            expected: what models never trained on the examples say.
        """
        precision = 1 / expected.variances
        level = float((precision * before).sum() / precision.sum())
        weights = precision * np.maximum(level - expected.values, 0.0)
        bias = float(((weights > 0) / expected.models).sum())
        if not weights.any():  # models never trained on the examples are surer about all of them
            weights, bias = precision, 0.0
        total = float(weights.sum())
        variance = (
            float((weights**2 * expected.variances * (1 + 1 / expected.models)).sum())
            + expected.group_shift * float((np.bincount(expected.groups, weights=weights) ** 2).sum())
            + expected.shift * total**2
        )
        uncertain = float((weights * expected.lowered).sum())
        offset = (float((weights * expected.values).sum()) + bias) / total
        return cls(weights / total, offset, (math.sqrt(variance) + uncertain) / total)
