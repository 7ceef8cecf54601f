"""The digits of scikit-learn: 1,797 handwritten digits of 8×8 pixels, which need no download."""

from __future__ import annotations

import numpy as np
import torch

from remanence.data.examples import Examples

_SPLIT_SEED = 0


def digits(n_test: int = 500) -> tuple[Examples, Examples]:
    """Training and test examples; an id is the position in the order of scikit-learn.

    The split is random but always the same for one `n_test`.

    Args:
        n_test: number of test examples.
    """
    from sklearn.datasets import load_digits  # takes two seconds, which only this data set should cost

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
