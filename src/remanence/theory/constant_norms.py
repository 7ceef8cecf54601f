"""Losses of examples whose gradients have the same norm at every step: no trace is needed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from remanence.errors import InputError
from remanence.theory.composition import Composition
from remanence.theory.group import group_loss, published_group_loss
from remanence.theory.privacy_loss import privacy_loss
from remanence.types import Bound, Mechanism

GroupMethod = Literal["coupled", "upper", "published"]


def constant_loss(
    *,
    sampling_rate: float,
    ratio: float,
    steps: int,
    alpha: float = 8.0,
    composition: Composition = "pathwise",
    p: float | None = None,
    everywhere: bool = False,
    assumed: bool = False,
) -> tuple[Bound, float]:
    """Privacy loss of an example whose gradient has the same norm at every step.

    Args:
        sampling_rate: probability that a step uses the example.
        ratio: gradient norm over batch size times sigma (over sigma for noise on the sum).
        steps: training steps.
        alpha: Rényi order.
        composition: how the losses of the steps are added.
        p: Hölder exponent; the composition's own choice by default.
        everywhere: the ratio bounds the gradient at every weight vector (clipping, a Lipschitz constant).
        assumed: the noise was not really added.

    Returns:
        The loss, and the Hölder exponent that was used.
    """
    _check_ratio(ratio)
    scores = privacy_loss(
        np.full((1, 1), ratio),
        steps=[0],
        mechanism=_mechanism(sampling_rate, steps, assumed=assumed),
        alpha=alpha,
        composition=composition,
        p=p,
        everywhere=everywhere,
    )
    formula = f"privacy loss, {composition}"
    return Bound(float(scores.values[0]), scores.status, scores.reasons, formula), scores.params["p"]


def constant_group_loss(
    *,
    sampling_rate: float,
    ratio: float,
    size: int,
    steps: int,
    similarity: float = 0.0,
    alpha: float = 8.0,
    method: GroupMethod = "coupled",
    composition: Composition = "pathwise",
    assumed: bool = False,
    seed: int = 0,
) -> Bound:
    """Group loss of a forget set whose gradients have one norm and one pairwise similarity.

    Args:
        sampling_rate: probability that a step uses an example.
        ratio: gradient norm of each example over batch size times sigma.
        size: number of examples in the forget set.
        steps: training steps.
        similarity: cosine between any two gradients, from 0 to 1.
        alpha: Rényi order.
        method: `coupled` (sampled), `upper` (its deterministic bound) or `published` (one point at a growing order).
        composition: how the losses of the steps are added.
        assumed: the noise was not really added.
        seed: random seed of the sampled estimate.
    """
    mechanism = _mechanism(sampling_rate, steps, assumed=assumed)
    if size < 0:
        raise InputError(f"`size` must be a whole number of at least 0; got {size}.")
    if not 0 <= similarity <= 1:
        raise InputError(f"`similarity` must be between 0 and 1; got {similarity}.")
    _check_ratio(ratio)
    if method == "published":

        def single(order: float) -> float:
            scores = privacy_loss(
                np.full((1, 1), ratio), steps=[0], mechanism=mechanism, alpha=order, composition="accountant"
            )
            return float(scores.values[0])

        return published_group_loss(single, size, alpha=alpha)
    gram = ratio**2 * (similarity * np.ones((size, size)) + (1 - similarity) * np.eye(size))
    return group_loss(
        [gram],
        steps=[0],
        mechanism=mechanism,
        alpha=alpha,
        method=method,
        composition=composition,
        seed=seed,
    )


def _check_ratio(ratio: float) -> None:
    if not (np.isfinite(ratio) and ratio >= 0):
        raise InputError(f"`ratio` must be finite and not negative; got {ratio}.")


def _mechanism(sampling_rate: float, steps: int, *, assumed: bool) -> Mechanism:
    """A mechanism for which a norm is its ratio."""
    return Mechanism(1.0, sampling_rate, steps, 1, sampling="poisson", denominator="fixed", assumed=assumed)
