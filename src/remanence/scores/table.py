"""Several scores of the same examples in one table, and their rank correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from remanence.errors import InputError, UnknownNameError
from remanence.scores.registry import SCORES
from remanence.theory.privacy_loss import privacy_losses
from remanence.types import Ids, Scores, Trace

_NEEDS = {"confidence": "confidence", "error_norm": "error"}


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores by column name, all of the same ids in the same order."""

    columns: Mapping[str, Scores]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("A table of scores must have at least one score; it has none.")
        for name, scores in self.columns.items():
            if not np.array_equal(scores.ids, self.ids):
                raise InputError(f"All scores of a table must be of the same ids; {name!r} is not.")

    def __repr__(self) -> str:
        return f"ScoreTable({len(self.ids)} examples: {', '.join(self.columns)})"

    @property
    def ids(self) -> Ids:
        return next(iter(self.columns.values())).ids

    def column(self, name: str) -> Scores:
        """One score; an unknown name raises an error that suggests the nearest."""
        if name not in self.columns:
            raise UnknownNameError("score", name, self.columns)
        return self.columns[name]

    def spearman(self) -> NDArray[np.float64]:
        """Rank correlation of every pair of columns; NaN if a column is constant."""
        ranks = rankdata(np.stack([scores.values for scores in self.columns.values()]), axis=1)
        ranks -= ranks.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(ranks, axis=1)
        constant = lengths == 0
        units = ranks / np.where(constant, 1.0, lengths)[:, None]
        matrix = np.clip(units @ units.T, -1.0, 1.0)
        np.fill_diagonal(matrix, 1.0)
        matrix[constant] = np.nan
        matrix[:, constant] = np.nan
        return matrix

    def document(self) -> dict[str, Any]:
        """The columns with their status, and their rank correlations, as JSON values; the scores are left out."""
        matrix = [[None if np.isnan(value) else value for value in row] for row in self.spearman().tolist()]
        return {
            "examples": len(self.ids),
            "scores": [
                {
                    "column": name,
                    "score": scores.name,
                    "params": dict(scores.params),
                    "status": scores.status.value,
                    "reasons": list(scores.reasons),
                }
                for name, scores in self.columns.items()
            ],
            "spearman": {"columns": list(self.columns), "matrix": matrix},
        }


def available_scores(trace: Trace) -> tuple[str, ...]:
    """The scores that can be computed from what this trace contains."""
    return tuple(name for name in SCORES if name not in _NEEDS or getattr(trace, _NEEDS[name]) is not None)


def score_table(
    trace: Trace,
    names: Sequence[str] = (),
    *,
    alphas: Sequence[float] = (8.0,),
    sigmas: Sequence[float | None] = (None,),
    **options: Any,
) -> ScoreTable:
    """Scores of one trace; the privacy loss at every pair of alpha and sigma.

    Args:
        trace: the recorded trace of a training run.
        names: names in `SCORES`; by default all that can be computed from the trace.
        alphas: orders of the privacy loss.
        sigmas: noise levels of the privacy loss; None is the mechanism's own.
        options: further arguments of `privacy_loss`.

    Returns:
        One column per score. If there are several privacy losses, their columns are named like
        `privacy_loss sigma=0.01`.
    """
    columns: dict[str, Scores] = {}
    for name in names or available_scores(trace):
        if name not in SCORES:
            raise UnknownNameError("score", name, SCORES)
        if name == "privacy_loss":
            losses = privacy_losses(trace, alphas=alphas, sigmas=sigmas, **options)
            columns |= {
                _column(alpha if len(alphas) > 1 else None, sigma if len(sigmas) > 1 else None): scores
                for (alpha, sigma), scores in losses.items()
            }
        else:
            columns[name] = SCORES[name](trace)
    return ScoreTable(columns)


def _column(alpha: float | None, sigma: float | None) -> str:
    options = {"alpha": alpha, "sigma": sigma}
    return " ".join(
        ["privacy_loss", *(f"{name}={value:g}" for name, value in options.items() if value is not None)]
    )
