import numpy as np
import pytest
import torch

import remanence as rm
from remanence.data import Examples, Split, digits
from remanence.forgetting import BAND_NAMES, bands, random_set


def toy(n: int = 6) -> Examples:
    return Examples(np.arange(10, 10 + n), torch.arange(n).float()[:, None], torch.arange(n) % 2, ("a", "b"))


def test_digits_are_split_once_and_for_all() -> None:
    train, test = digits()
    assert (len(train), len(test)) == (1297, 500)
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    assert train.inputs.shape[1:] == (1, 8, 8)
    assert float(train.inputs.max()) == 1.0
    assert train.digest() == digits()[0].digest()
    assert train.digest() != test.digest()


def test_rows_are_found_by_id() -> None:
    part = toy().take(np.array([14, 11]))
    assert part.inputs[:, 0].tolist() == [4, 1]
    assert toy().without(np.array([14, 11])).ids.tolist() == [10, 12, 13, 15]
    with pytest.raises(rm.errors.DataError, match="the first is 99"):
        toy().take(np.array([11, 99]))


def test_a_split_derives_what_is_kept() -> None:
    split = Split(toy(), toy(), rm.ForgetSet("f", np.array([11])))
    assert split.forget.ids.tolist() == [11]
    assert split.retain.ids.tolist() == [10, 12, 13, 14, 15]
    with pytest.raises(rm.errors.DataError, match="leave examples to retain"):
        Split(toy(), toy(), rm.ForgetSet("all", toy().ids))


def test_labels_outside_the_classes_are_refused() -> None:
    with pytest.raises(rm.errors.DataError, match=r"0\.\.1; got 0\.\.2"):
        Examples(np.arange(3), torch.zeros(3, 1), torch.arange(3), ("a", "b"))


def test_bands_rise_and_are_disjoint() -> None:
    rng = np.random.default_rng(0)
    scores = rm.Scores("s", np.arange(1000, 1100), rng.permutation(100).astype(float))
    found = bands(scores, 10)
    assert [band.name for band in found] == list(BAND_NAMES)
    value = dict(zip(scores.ids.tolist(), scores.values.tolist(), strict=True))
    spans = [sorted(value[i] for i in band.ids.tolist()) for band in found]
    assert spans[0] == list(range(10))
    assert spans[1] == list(range(20, 30))
    assert spans[2] == list(range(45, 55))
    assert spans[4] == list(range(90, 100))
    assert len({i for band in found for i in band.ids.tolist()}) == 50


def test_bands_of_tied_scores_do_not_depend_on_the_order_of_rows() -> None:
    ids = np.arange(50)
    shuffled = np.random.default_rng(1).permutation(50)
    one = bands(rm.Scores("s", ids, np.zeros(50)), 5)
    other = bands(rm.Scores("s", ids[shuffled], np.zeros(50)), 5)
    assert [b.ids.tolist() for b in one] == [b.ids.tolist() for b in other]
    with pytest.raises(rm.InputError, match="between 1 and 10"):
        bands(rm.Scores("s", ids, np.zeros(50)), 11)


def test_a_random_set_is_its_seed() -> None:
    ids = np.arange(100)
    assert random_set(ids, 10, 3).ids.tolist() == random_set(ids, 10, 3).ids.tolist()
    assert random_set(ids, 10, 3).ids.tolist() != random_set(ids, 10, 4).ids.tolist()
    with pytest.raises(rm.InputError, match="between 1 and the 100"):
        random_set(ids, 101, 0)
