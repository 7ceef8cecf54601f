"""What metrics share beyond one model's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remanence.audit.shadow_table import ShadowTable
from remanence.data import Examples
from remanence.tasks.poison import Poison

if TYPE_CHECKING:
    from remanence.audit.evaluation import Evaluation


@dataclass(frozen=True, eq=False)
class Context:
    """Whatever of this is at hand; a metric that needs what is missing says so.

    Args:
        oracles: evaluations of models that were never trained on the forget set, on the same split.
        ensemble: evaluations of other models made as the evaluated one was, with other seeds.
        poison: the noise that the forget set's inputs were trained with.
        clean: examples without that noise.
        shadows: what shadow models say of the forget set.
    """

    oracles: tuple[Evaluation, ...] = ()
    ensemble: tuple[Evaluation, ...] = ()
    poison: Poison | None = None
    clean: Examples | None = None
    shadows: ShadowTable | None = None


NOTHING = Context()
