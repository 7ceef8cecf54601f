"""KLOM: divergence between the margins of unlearned models and of oracles on an example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError

BINS = 20
_EMPTY = 1e-5
Floats = NDArray[np.float64]


def klom_by_example(models: Floats, oracles: Floats, *, bins: int = BINS) -> Floats:
    """For each example, KL(oracles ‖ models) of the margins' histograms, in nats.

    Margins are log-odds of the true class within ±100; the histogram's bins divide the range of the example's margins
    in both sets; 1e-5 is added to the share of every bin, so that the divergence is finite.

    Args:
        models: [M, n] margins of M models on n examples.
        oracles: [O, n].
        bins: number of bins of the histograms.

    The original takes a hundred models of each. With a few models, the result is dominated by which bins happen to be
    empty; compare it only with that of as many oracles among themselves.
    """
    if models.ndim != 2 or oracles.ndim != 2 or models.shape[1] != oracles.shape[1] or not models.size:
        raise InputError(
            f"KLOM needs margins of models and of oracles on the same examples; got {models.shape} and {oracles.shape}."
        )
    both = np.concatenate([models, oracles])
    low, high = both.min(axis=0), both.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    p, q = (_shares((margins - low) / width, bins) for margins in (oracles, models))
    return np.asarray((p * np.log(p / q)).sum(axis=0))


def _shares(positions: Floats, bins: int) -> Floats:
    """[bins, n], for positions in [0, 1]."""
    cells = np.minimum((positions * bins).astype(np.int64), bins - 1)
    counts = np.stack([(cells == i).sum(axis=0) for i in range(bins)]) / len(positions) + _EMPTY
    shares: Floats = counts / counts.sum(axis=0)
    return shares


def klom(evaluation: Evaluation) -> float:
    """The mean over the forget set, of this model and its ensemble against the oracles."""
    context = evaluation.context
    if not context.oracles:
        raise InputError("KLOM needs oracles: models trained without the forget set.")
    models = [evaluation, *(other for other in context.ensemble if other is not evaluation)]
    return float(klom_by_example(_margins(models), _margins(context.oracles)).mean())


def _margins(evaluations: Sequence[Evaluation]) -> Floats:
    return np.stack([evaluation.forget.margin.numpy() for evaluation in evaluations])
