"""Scikit-learn's digits: 1,797 real handwritten digits, 8×8 pixels; ships with the library, needs no network."""

from __future__ import annotations

import numpy as np
import torch

from remanence.data.examples import Examples

_SPLIT_SEED = 0


def digits(n_test: int = 500) -> tuple[Examples, Examples]:
    """Training and test examples; an id is the position in scikit-learn's order.

    The split is random but always the same, so that an id is in the training set for good.
    """
    from sklearn.datasets import load_digits  # two seconds that only this data set is to cost

    bunch = load_digits()
    inputs = torch.tensor(bunch.data / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    names = tuple(str(digit) for digit in range(10))
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(labels))
    parts = np.sort(order[n_test:]), np.sort(order[:n_test])
    train, test = (
        Examples(ids, inputs[torch.from_numpy(ids)], labels[torch.from_numpy(ids)], names) for ids in parts
    )
    return train, test
