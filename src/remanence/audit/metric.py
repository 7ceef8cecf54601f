"""What every metric is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from remanence.audit.evaluation import Evaluation

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
        scale: how far off counts as close, where five points of a share do not fit.
    """

    name: str
    meaning: str
    better: Better
    at_oracle: str
    compute: Callable[[Evaluation], float]
    needs: Need | None = None
    scale: float = 0.05

    def __call__(self, evaluation: Evaluation) -> float:
        """The value for one model."""
        return self.compute(evaluation)
