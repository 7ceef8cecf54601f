"""Targets from models that never saw an example: chosen, kept, and refused for other data."""

from pathlib import Path

import numpy as np
import pytest
import torch

import remanence as rm
from remanence.data import Examples, Split, digits
from remanence.models import small_conv
from remanence.tasks import Recipe
from remanence.unlearning import FoldTargets, make_method, read_fold_targets
from remanence.unlearning.out_of_fold import toward_folds

RECIPE = Recipe(epochs=1, learning_rate=0.05, batch_size=20)


def examples() -> Examples:
    train, _ = digits()
    return train.take(train.ids[:40])


def folds(train: Examples) -> FoldTargets:
    """Two models without the first thirty, one without the next five; all were trained on the last five."""
    rows, random = np.arange(40), torch.Generator().manual_seed(0)
    masks = (rows < 30, rows < 30, (rows >= 30) & (rows < 35))
    made = [(mask, torch.randn(int(mask.sum()), 10, generator=random)) for mask in masks]
    return FoldTargets.from_folds(train, made)


def test_the_targets_are_those_of_one_model_each() -> None:
    train, random = examples(), torch.Generator().manual_seed(0)
    both = torch.stack([torch.randn(30, 10, generator=random).log_softmax(dim=1) for _ in range(2)])
    outputs = folds(train).of(train.take(train.ids[:30]))
    from_first, from_second = (torch.isclose(outputs, one).all(dim=1) for one in both)
    assert (from_first ^ from_second).all()
    assert 5 <= from_first.sum() <= 25


def test_the_model_is_the_one_that_left_out_most_nearly_what_the_request_removes() -> None:
    """One model misses the whole class, one the hard half of it, one every fourth example."""
    train = digits()[0]
    zeros = train.take(train.ids[train.labels.numpy() == 0][:40])
    rows = np.arange(40)
    masks = (np.ones(40, bool), rows >= 20, rows % 4 == 0)
    made = FoldTargets.from_folds(
        zeros,
        [(mask, 5.0 * torch.eye(10)[torch.full((int(mask.sum()),), k)]) for k, mask in enumerate(masks)],
        losses=np.arange(40.0),
    )
    hard, spread, everything = zeros.ids[20:], zeros.ids[::4], zeros.ids
    assert made.of(zeros.take(hard)).argmax(dim=1).eq(1).all()
    assert made.of(zeros.take(spread)).argmax(dim=1).eq(2).all()
    assert made.of(zeros).argmax(dim=1).eq(0).all()
    some = zeros.take(hard[:4])
    assert made.of(some, removed=everything).argmax(dim=1).eq(0).all()
    assert made.without(zeros.ids[:20]).of(some, removed=hard).argmax(dim=1).ne(2).all()


def test_the_models_of_two_calibrations_are_joined() -> None:
    train = examples()
    one = FoldTargets.from_folds(train, [(np.arange(40) < 20, torch.zeros(20, 10))])
    two = FoldTargets.from_folds(train, [(np.arange(40) >= 20, torch.ones(20, 10))])
    assert one.joined(two).of(train).shape == (40, 10)
    assert set(one.joined(two).models) == {0, 1}
    with pytest.raises(rm.InputError, match="the same examples"):
        one.joined(two.without(train.ids[:1]))


def test_losses_are_kept_and_leave_with_their_examples(tmp_path: Path) -> None:
    train = examples()
    made = FoldTargets.from_folds(train, [(np.ones(40, bool), torch.zeros(40, 10))], losses=np.arange(40.0))
    made.without(train.ids[:2]).write(tmp_path / "folds")
    assert read_fold_targets(tmp_path / "folds").losses_of(train.ids[[5, 2]]).tolist() == [5.0, 2.0]
    with pytest.raises(rm.errors.DataError, match="privacy losses of the examples"):
        folds(train).losses_of(train.ids[:1])


def test_written_and_read_they_are_the_same(tmp_path: Path) -> None:
    train = examples()
    folds(train).write(tmp_path / "folds")
    some = train.take(train.ids[[7, 3, 33]])
    assert torch.equal(read_fold_targets(tmp_path / "folds").of(some), folds(train).of(some))


def test_other_data_are_refused() -> None:
    train, whole = examples(), digits()[0]
    made = folds(train)
    with pytest.raises(rm.errors.DataError, match=r"10 have none, the first is id .* folds of other data"):
        made.of(whole.take(whole.ids[30:50]))
    with pytest.raises(rm.errors.DataError, match=r"3 of 5 are in every model's training data.*more folds"):
        made.of(train.take(train.ids[33:38]))
    changed = train.with_inputs(train.inputs + 0.1)
    with pytest.raises(rm.errors.DataError, match="input or label of 3 of 3 examples"):
        made.of(changed.take(train.ids[:3]))
    relabelled = train.with_labels((train.labels + 1) % 10)
    with pytest.raises(rm.errors.DataError, match="trained on other data"):
        made.of(relabelled.take(train.ids[:3]))


def test_no_models_are_refused() -> None:
    with pytest.raises(rm.InputError, match="at least one model"):
        FoldTargets.from_folds(examples(), [])


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    data = Split(examples(), digits()[1], rm.ForgetSet("f", examples().ids[:5]))
    method = make_method("out_of_fold", {"targets": str(tmp_path)}, RECIPE)
    with pytest.raises(rm.errors.RunFolderError):
        method.begin(small_conv(width=4), data, seed=0)


@pytest.mark.parametrize("name", ["out_of_fold", "reset"])
def test_training_draws_the_outputs_towards_the_targets(name: str, tmp_path: Path) -> None:
    train, test = examples(), digits()[1]
    folds(train).write(tmp_path / "folds")
    data = Split(train, test, rm.ForgetSet("f", train.ids[:20]))
    wanted = folds(train).of(data.forget).softmax(dim=1)
    torch.manual_seed(0)
    model = small_conv(width=4)

    def distance() -> float:
        with torch.no_grad():
            return (model.eval()(data.forget.inputs).softmax(dim=1) - wanted).abs().sum(dim=1).mean().item()

    before = distance()
    options = {"targets": str(tmp_path / "folds"), "epochs": 100, "weight": 3.0}
    for _ in make_method(name, options, RECIPE)(model, data, seed=0):
        pass
    assert distance() < 0.5 * before


def test_a_single_example_does_not_count_as_much_as_a_batch(tmp_path: Path) -> None:
    train = examples()
    folds(train).write(tmp_path / "folds")
    weights = {
        count: toward_folds(train.take(train.ids[:count]), RECIPE, 0, str(tmp_path / "folds"), 2.0)(0).weight
        for count in (1, 10, 20, 30)
    }
    assert weights == pytest.approx({1: 0.1, 10: 1.0, 20: 2.0, 30: 2.0})
