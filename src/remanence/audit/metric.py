"""What every metric is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from remanence.audit.evaluation import Evaluation

POINTS = 0.05
"""Five points: how far off counts as close for a share."""
Need = Literal["oracles", "poison", "shadows"]
Better = Literal["oracle", "lower", "higher"]


@dataclass(frozen=True)
class Metric:
    """A number that a model is judged by, and how to read it.

    Args:
        name: what it is called everywhere.
        meaning: what it is, in one sentence.
        better: `oracle`, the nearer to what oracles have the better, on both sides; or `lower`, or `higher`.
        at_oracle: what a model that was never trained on the forget set would have.
        compute: from an evaluation.
        needs: what the evaluation's context must hold.
        scale: how far off counts as close, where five points of a share do not fit; a function of the evaluation where
            it depends on how many examples there are.
        reference: what to compare with where there are no oracles, if theory knows it.
    """

    name: str
    meaning: str
    better: Better
    at_oracle: str
    compute: Callable[[Evaluation], float]
    needs: Need | None = None
    scale: float | Callable[[Evaluation], float] = POINTS
    reference: float | None = None

    def __call__(self, evaluation: Evaluation) -> float:
        """The value for one model."""
        return self.compute(evaluation)
