"""The attack's own logistic regression, all folds at once, beside scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from remanence.audit.membership_attack import _fit, membership_attack


@pytest.mark.parametrize("shape", ["uniform", "confident", "wide", "separable", "constant"])
def test_the_same_fit(shape: str) -> None:
    draw = np.random.default_rng(0)
    n = 300
    signal = {
        "uniform": draw.uniform(size=2 * n),
        "confident": np.r_[1 - draw.exponential(1e-3, n), 1 - draw.exponential(1e-1, n)],
        "wide": np.r_[draw.normal(5, 10, n), draw.normal(-5, 30, n)],
        "separable": np.r_[draw.uniform(0.9, 1, n), draw.uniform(0, 0.5, n)],
        "constant": np.full(2 * n, 0.7),
    }[shape]
    truth = np.repeat([0.0, 1.0], n)
    used = draw.random((5, 2 * n)) < 0.8
    slope, offset = _fit(signal, truth, used)
    for row in range(len(used)):
        peer = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1000)
        peer.fit(signal[used[row], None], truth[used[row]])
        assert slope[row] == pytest.approx(peer.coef_[0, 0], rel=1e-5, abs=1e-6)
        assert offset[row] == pytest.approx(peer.intercept_[0], rel=1e-5, abs=1e-6)


def test_the_same_attack_by_hand() -> None:
    draw = np.random.default_rng(1)
    members, outsiders, targets = (draw.beta(a, b, n) for a, b, n in ((8, 1, 400), (3, 1, 250), (5, 1, 90)))
    found = membership_attack(members, outsiders, targets, folds=5)
    draw = np.random.default_rng(0)
    ours, theirs = draw.permutation(members)[:250], draw.permutation(outsiders)[:250]
    shares, right = [], []
    for fold in range(5):
        rest, own = (np.arange(250) % 5 != fold), (np.arange(250) % 5 == fold)
        peer = LogisticRegression(solver="newton-cholesky", tol=1e-12)
        peer.fit(np.r_[ours[rest], theirs[rest]][:, None], np.repeat([0, 1], rest.sum()))
        shares.append(peer.predict(targets[:, None]).mean())
        right.append(peer.predict(np.r_[ours[own], theirs[own]][:, None]) == np.repeat([0, 1], own.sum()))
    assert found.called_outsider == pytest.approx(np.mean(shares))
    assert found.accuracy == pytest.approx(np.mean(np.concatenate(right)))
