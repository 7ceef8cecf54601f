"""The description of a metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from remanence.audit.evaluation import Evaluation
from remanence.audit.null import Null
from remanence.errors import InputError

POINTS = 0.05
"""Default tolerance of a metric that is a share: five percentage points."""
Need = Literal["oracles", "poison", "shadows", "the original model", "people", "relearning", "canaries"]
Better = Literal["oracle", "lower", "higher"]


@dataclass(frozen=True)
class Metric:
    """A number that a model is judged by, and how to read it.

    Args:
        name: its name in `METRICS`, tables and files.
        meaning: one sentence.
        better: `oracle` if closer to the oracles' value is better, on both sides; or `lower`, or `higher`.
        at_oracle: the value of a model that was never trained on the forget set, in words.
        compute: from an evaluation.
        needs: what the evaluation's context must contain.
        tolerance: how far from the oracles counts as close; a function of the evaluation if it depends on the number
            of examples.
        reference: the value to compare with if there are no oracles, where theory gives one.
        of_classes: whether it needs the probabilities of classes.
        fewest_shadows: with fewer shadow models the metric gives no number.
        null: the values when there is nothing to find, which take the place of the oracles' and of the tolerance.
        spread: standard deviation of the value, where it can be estimated.
    """

    name: str
    meaning: str
    better: Better
    at_oracle: str
    compute: Callable[[Evaluation], float]
    needs: Need | None = None
    tolerance: float | Callable[[Evaluation], float] = POINTS
    reference: float | None = None
    of_classes: bool = False
    fewest_shadows: int = 0
    null: Callable[[Evaluation], Null] | None = None
    spread: Callable[[Evaluation], float] | None = None

    def tolerance_for(self, evaluation: Evaluation) -> float:
        return self.tolerance(evaluation) if callable(self.tolerance) else self.tolerance

    def __call__(self, evaluation: Evaluation) -> float:
        shadows = evaluation.context.shadows
        if shadows is not None and len(shadows.member) < self.fewest_shadows:
            raise InputError(
                f"`{self.name}` needs at least {self.fewest_shadows} shadow models; got {len(shadows.member)}. With so "
                "few, their variance is hardly known, and a value near that of the oracles would mean nothing."
            )
        return self.compute(evaluation)
