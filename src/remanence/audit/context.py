"""What metrics read besides one model's outputs: oracles, poison, shadow models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples
from remanence.errors import InputError
from remanence.tasks.canaries import Canaries
from remanence.tasks.poison import Poison
from remanence.types import Ids, as_ids

if TYPE_CHECKING:
    from remanence.audit.evaluation import Evaluation
    from remanence.audit.relearning import Relearned


@dataclass(frozen=True, eq=False)
class ShadowTable:
    """Outputs of N shadow models, each unlearned by the method under test, on m examples.

    Args:
        ids: the examples.
        member: [N, m] whether the shadow model was trained on the example before unlearning it.
        signal: [N, m] log-odds of the true class, after unlearning.
    """

    ids: Ids
    member: NDArray[np.bool_]
    signal: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids))
        shape = (len(self.member), len(self.ids))
        if self.member.shape != shape or self.signal.shape != shape:
            raise InputError(
                f"`member` and `signal` must have one row per shadow model and one column per example; "
                f"got {self.member.shape} and {self.signal.shape} for {len(self.ids)} examples."
            )
        inside = self.member.sum(axis=0)
        if (inside < 2).any() or (len(self.member) - inside < 2).any():
            raise InputError(
                "Every example needs at least two shadow models trained with it and two without."
            )


@dataclass(frozen=True, eq=False)
class Context:
    """All optional; a metric that needs what is missing raises `InputError`.

    Args:
        oracles: evaluations of models that were never trained on the forget set, on the same split.
        ensemble: evaluations of models that differ from the evaluated one only in their seeds.
        poison: the noise that the forget set's inputs were trained with.
        clean: examples without that noise.
        shadows: outputs of shadow models on the forget set.
        before: evaluation of the model before unlearning, on the same split.
        people: whose the examples are, by id.
        relearned: what the evaluated model recovers when it is fine-tuned.
        canaries: examples that a coin included in training or left out.
        excess: how much surer a model is about the forget set than models never trained on it, if these are known.
    """

    oracles: tuple[Evaluation, ...] = ()
    ensemble: tuple[Evaluation, ...] = ()
    poison: Poison | None = None
    clean: Examples | None = None
    shadows: ShadowTable | None = None
    before: Evaluation | None = None
    people: Mapping[int | str, str] | None = None
    relearned: Relearned | None = None
    canaries: Canaries | None = None
    excess: Callable[[Evaluation], float] | None = None


NO_CONTEXT = Context()
