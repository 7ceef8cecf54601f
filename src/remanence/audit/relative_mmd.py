"""Three-sample test: is a model as close to retrained models as they are to each other?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from remanence.audit.evaluation import Evaluation, Outputs
from remanence.errors import InputError

FEATURES = 64
BANDWIDTH = 0.5
FEWEST = 2
FEWEST_FOR_P = 19
"""The smallest p-value with k oracles is 1/(k + 1): 0.05 needs 19."""
_SEED = 0
Floats = NDArray[np.float64]


def relative_mmd(evaluation: Evaluation) -> float:
    r"""Mean squared MMD to the oracles, divided by that of the oracles among themselves.

    Formula: :math:`\frac{1}{k}\sum_i \mathrm{MMD}^2(u, o_i) \Big/ \frac{2}{k(k-1)}\sum_{i<j} \mathrm{MMD}^2(o_i, o_j)`,
    where the sample of a model is its error vector :math:`p(x) - e_y` on every forget example (for tasks without
    classes, the confidence minus 1), and the kernel is :math:`\exp(-\lVert a - b\rVert^2 / (2 \cdot 0.5^2))`. About 1
    for a retrained model.

    Source: Bounliphone et al., "A Test of Relative Similarity for Model Selection in Generative Models", ICLR 2016.

    Departs: the kernel is approximated by 64 random Fourier features with a fixed seed, so that the cost is linear in
    the forget set; error vectors lie within a ball of radius √2, so the bandwidth is fixed, too. The paper's normal
    approximation treats examples as the sample; what varies between retrainings is the model, so `mmd_p` permutes
    models.
    """
    oracles = evaluation.context.oracles
    if len(oracles) < FEWEST:
        raise InputError(
            f"The relative MMD needs at least {FEWEST} oracles; got {len(oracles)}. With one, there is no distance of "
            "oracles among themselves to compare with."
        )
    distances = _distances([evaluation, *oracles])
    among = distances[1:, 1:][np.triu_indices(len(oracles), 1)].mean()
    return float(distances[0, 1:].mean() / max(among, np.finfo(np.float64).tiny))


def mmd_p(evaluation: Evaluation) -> float:
    """Permutation p-value of the hypothesis that the model is one more retrained model.

    The statistic of a model is its mean squared MMD to all the others; the p-value is the share of models, this one
    included, whose statistic is at least as large. It is exact for any number of oracles, since retrained models are
    exchangeable; a large p-value does not show that the model is retrained.
    """
    oracles = evaluation.context.oracles
    if len(oracles) < FEWEST_FOR_P:
        raise InputError(
            f"The p-value of the three-sample test needs at least {FEWEST_FOR_P} oracles; got {len(oracles)}. With so "
            f"few it is never below {1 / (len(oracles) + 1):.2f}, whatever the model."
        )
    statistic = _distances([evaluation, *oracles]).sum(axis=1)
    return float((statistic >= statistic[0] * (1 - 1e-12)).mean())


def _distances(evaluations: Sequence[Evaluation]) -> Floats:
    """[models, models] squared MMD between the samples of each pair."""
    means = np.stack([evaluation.once("mean embedding", mean_embedding) for evaluation in evaluations])
    products = means @ means.T
    squares = products.diagonal()
    return np.asarray(np.maximum(squares[:, None] + squares - 2 * products, 0))


def mean_embedding(evaluation: Evaluation) -> Floats:
    """[features] the mean over the forget set of the random Fourier features of the error vectors."""
    outputs = evaluation.forget
    errors = _class_errors(outputs) if len(outputs.logits) else outputs.confidence.numpy()[:, None] - 1
    frequencies, phases = _features(errors.shape[1])
    return np.asarray(np.cos(errors @ frequencies + phases).mean(axis=0) * np.sqrt(2 / FEATURES))


def _class_errors(outputs: Outputs) -> Floats:
    errors: Floats = outputs.probabilities.numpy().copy()
    errors[np.arange(len(errors)), outputs.labels.numpy()] -= 1
    return errors


@lru_cache(maxsize=4)
def _features(dimension: int) -> tuple[Floats, Floats]:
    draw = np.random.default_rng(_SEED)
    return draw.normal(0, 1 / BANDWIDTH, (dimension, FEATURES)), draw.uniform(0, 2 * np.pi, FEATURES)
