"""KLOM: how differently unlearned models and oracles are distributed in what they say of an example."""

from __future__ import annotations

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
    in both sets; every bin gets 1e-5 of a share more, so that the divergence is finite.

    Args:
        models: [M, n] margins of M models on n examples.
        oracles: [O, n].
        bins: of the histograms.

    The original takes a hundred models of each; with a handful the number is dominated by which bins happen to be
    empty, and can be compared only with that of as many oracles among themselves.
    """
    if models.ndim != 2 or oracles.ndim != 2 or models.shape[1] != oracles.shape[1] or not models.size:
        raise InputError(
            f"KLOM needs margins of models and of oracles on the same examples; got {models.shape} and {oracles.shape}."
        )
    both = np.concatenate([models, oracles])
    low, high = both.min(axis=0), both.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    p, q = (_shares((each - low) / width, bins) for each in (oracles, models))
    return np.asarray((p * np.log(p / q)).sum(axis=0))


def _shares(places: Floats, bins: int) -> Floats:
    """[bins, n], for places in [0, 1]."""
    cells = np.minimum((places * bins).astype(np.int64), bins - 1)
    counts = np.stack([(cells == i).sum(axis=0) for i in range(bins)]) / len(places) + _EMPTY
    shares: Floats = counts / counts.sum(axis=0)
    return shares


def klom(evaluation: Evaluation) -> float:
    """The mean over the forget set, of this model (and others made alike) against the oracles."""
    context = evaluation.context
    if not context.oracles:
        raise InputError("KLOM needs oracles: models trained without the forget set (--oracles).")
    models = [evaluation, *(each for each in context.ensemble if each is not evaluation)]
    sides = [np.stack([each.forget.margin.numpy() for each in side]) for side in (models, context.oracles)]
    return float(klom_by_example(*sides).mean())
