"""The status of a privacy loss (certificate, estimate, heuristic, vacuous) and the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.types import Mechanism, Status, Trace

VACUOUS_ABOVE = 100.0
"""A Rényi bound above this many nats lets a test with a false-alarm rate of e^-100 succeed always."""


_FROM_STRONG_TO_WEAK = (Status.CERTIFICATE, Status.ESTIMATE, Status.HEURISTIC, Status.VACUOUS)


def weakest(*statuses: Status) -> Status:
    """The status of a result that rests on several numbers: that of the weakest."""
    return max(statuses, key=_FROM_STRONG_TO_WEAK.index)


@dataclass(frozen=True)
class Justification:
    """A status and the sentences that justify it."""

    status: Status
    reasons: tuple[str, ...]

    def for_values(self, values: NDArray[np.float64]) -> Justification:
        """The same status, or `vacuous` if all values are too large to mean anything."""
        infinite = np.isinf(values)
        useless = infinite if self.status is Status.HEURISTIC else infinite | (values > VACUOUS_ABOVE)
        if not useless.any():
            return self
        size = "infinite" if self.status is Status.HEURISTIC else f"above {VACUOUS_ABOVE:g} nats"
        reason = f"{int(useless.sum())} of {values.size} values are {size}: they are no useful bounds."
        return Justification(Status.VACUOUS if useless.all() else self.status, (*self.reasons, reason))


def violated_assumptions(mechanism: Mechanism) -> tuple[str, ...]:
    """Why no theorem covers this training, as sentences; empty if one does."""
    full = mechanism.sampling_rate == 1
    checks = (
        (
            mechanism.assumed,
            "The noise is assumed, not added, so nothing hides the example: a score, not a bound.",
        ),
        (
            mechanism.sampling != "poisson" and not full,
            "Batches come from shuffled epochs; the moment formula needs Poisson sampling.",
        ),
        (
            mechanism.denominator != "fixed",
            "The batch mean divides by the number drawn, so removing an example changes the others' share; "
            "the formula needs a fixed denominator.",
        ),
        (
            mechanism.couples_examples,
            "One example changes another's gradient (BatchNorm), which the theorem excludes.",
        ),
    )
    return (*(sentence for is_violated, sentence in checks if is_violated), *mechanism.departures)


def interpolation_reasons(*runs: Trace) -> tuple[str, ...]:
    """Why no certificate may use these traces, as sentences; empty if every norm was measured."""
    interpolated, all_norms = sum(run.interpolated for run in runs), sum(run.norms.size for run in runs)
    if not interpolated:
        return ()
    return (
        f"{interpolated} of {all_norms} norms were interpolated between measured ones; they bound nothing.",
    )


def justify_loss(
    mechanism: Mechanism,
    *,
    composition: str,
    rule: str,
    runs: int,
    everywhere: bool,
    capped: bool,
    n_checkpoints: int,
    interpolated: tuple[str, ...] = (),
) -> Justification:
    """The status of a loss under this mechanism, before the size of its values is considered.

    Interpolated norms, for which `interpolated` gives the reasons, never lead to a certificate.
    """
    violated = violated_assumptions(mechanism)
    if composition == "printed":
        violated += (
            "The Definition as printed counts time from the start, for which it is not a theorem, "
            "and carries a factor of 3T − 1 too many.",
        )
    if violated:
        return Justification(Status.HEURISTIC, (*violated, *interpolated))
    if capped or (everywhere and not interpolated):
        sound = "Poisson sampling (or full batches), a fixed denominator and real noise."
        bounded = "The norms hold at every weight vector; each example's largest stands for all steps."
        worst = "Every value is the worst case at `max_norm`, which holds at every weight vector."
        return Justification(
            Status.CERTIFICATE, (sound, bounded if everywhere and not interpolated else worst)
        )
    reasons = ["The norms were observed along training; they bound nothing beyond it."]
    if composition == "accountant":
        reasons.append("An accountant on observed norms ignores that they are random.")
    elif runs == 1:
        reasons.append("One run stands for the expectation over runs, which biases the value low.")
    else:
        reasons.append(f"A log-mean-exp over {runs} runs is biased low.")
    if n_checkpoints < mechanism.steps:
        filled = f"Norms between {n_checkpoints} checkpoints are interpolated by the {rule} rule."
        reasons.append(filled if n_checkpoints > 1 else "One recorded norm stands for every step.")
    return Justification(Status.ESTIMATE, (*reasons, *interpolated))
