"""KLOM: divergence between the margins of unlearned models and of oracles on an example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from remanence.audit.evaluation import Evaluation
from remanence.audit.null import Null, null_of
from remanence.errors import InputError

BINS = 20
FEWEST = 5
"""The smallest number of models, and of oracles: ten models can be divided into two halves in 252 ways."""
_EMPTY = 1e-5
_DRAWS = 200
Floats = NDArray[np.float64]


def klom_by_example(models: Floats, oracles: Floats, *, bins: int = BINS) -> Floats:
    """For each example, KL(oracles ‖ models) of the margins' histograms, in nats.

    Margins are log-odds of the true class within ±100; the histogram's bins divide the range of the example's margins
    in both sets; 1e-5 is added to the share of every bin, so that the divergence is finite.

    Args:
        models: [M, n] margins of M models on n examples.
        oracles: [M, n] margins of as many oracles.
        bins: number of bins of the histograms.

    The original takes a hundred models of each. With a few models, the result is dominated by which bins happen to be
    empty, so sets of different sizes differ for that reason alone: both must have the same size, and the result is to
    be compared with `klom_null`.
    """
    if models.ndim != 2 or models.shape != oracles.shape or not models.size:
        raise InputError(
            f"KLOM needs margins of equally many models and oracles on the same examples; got {models.shape} and "
            f"{oracles.shape}."
        )
    both = np.concatenate([models, oracles])
    low, high = both.min(axis=0), both.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    p, q = (_shares((margins - low) / width, bins) for margins in (oracles, models))
    return np.asarray((p * np.log(p / q)).sum(axis=0))


def _shares(positions: Floats, bins: int) -> Floats:
    """[bins, n], for positions in [0, 1]."""
    n = positions.shape[1]
    cells = np.minimum((positions * bins).astype(np.int64), bins - 1) * n + np.arange(n)
    counts = np.bincount(cells.ravel(), minlength=bins * n).reshape(bins, n) / len(positions) + _EMPTY
    shares: Floats = counts / counts.sum(axis=0)
    return shares


def klom(evaluation: Evaluation) -> float:
    """The mean over the forget set, of this model and its ensemble against as many oracles."""
    return float(klom_by_example(*_sets(evaluation)).mean())


def klom_null(evaluation: Evaluation) -> Null:
    """KLOM when models and oracles are mixed and divided at random: that of models that are oracles."""
    return evaluation.once("klom null", _null)


def _null(evaluation: Evaluation) -> Null:
    both, rng = np.concatenate(_sets(evaluation)), np.random.default_rng(0)
    half = len(both) // 2
    draws = []
    for _ in range(_DRAWS):
        mixed = both[rng.permutation(len(both))]
        draws.append(float(klom_by_example(mixed[:half], mixed[half:]).mean()))
    return null_of(draws)


def _sets(evaluation: Evaluation) -> tuple[Floats, Floats]:
    """The margins of the models and of the oracles, the first of each so that they are equally many."""
    context = evaluation.context
    models = [evaluation, *(other for other in context.ensemble if other is not evaluation)]
    size = min(len(models), len(context.oracles))
    if size < FEWEST:
        raise InputError(
            f"KLOM needs oracles, at least {FEWEST}, and as many models that differ only in their seeds; got "
            f"{len(context.oracles)} and {len(models)}. It compares two distributions of outputs; of fewer "
            f"models the number "
            "would show which bins are empty."
        )
    return _margins(models[:size]), _margins(context.oracles[:size])


def _margins(evaluations: Sequence[Evaluation]) -> Floats:
    return np.stack([evaluation.forget.margin.numpy() for evaluation in evaluations])
