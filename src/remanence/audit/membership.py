"""A membership inference attack on the model's confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from remanence.audit.evaluation import Evaluation
from remanence.errors import NumericalError

_SEED = 0


def membership(evaluation: Evaluation) -> float:
    """MIA: the share of the forget set that an attacker takes for examples never trained on.

    The attacker fits a logistic regression that tells retain examples (members) from test examples by
    the probability the model gives the true class, equally many of each, and applies it to the forget
    set. A larger value means better forgotten, up to the value that a model never trained on it has.

    Source: the paper, appendix "Evaluation metrics".
    """
    forget, retain, test = (
        part.confidence.double().numpy() for part in (evaluation.forget, evaluation.retain, evaluation.test)
    )
    if not all(np.isfinite(part).all() for part in (forget, retain, test)):
        raise NumericalError("The model's outputs are not finite; a membership attack on them means nothing.")
    size = min(len(retain), len(test))
    choose = np.random.default_rng(_SEED)
    members, outsiders = (choose.choice(part, size, replace=False) for part in (retain, test))
    return float(_attacker(members, outsiders).predict(forget[:, None]).mean())


def _attacker(members: NDArray[np.float64], outsiders: NDArray[np.float64]) -> LogisticRegression:
    """A classifier that answers 1 for outsiders."""
    signal = np.concatenate([members, outsiders])[:, None]
    truth = np.repeat([0, 1], [len(members), len(outsiders)])
    return LogisticRegression(solver="newton-cholesky").fit(signal, truth)
