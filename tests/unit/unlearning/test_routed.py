"""Easy, middle and hard examples of one forget set: left out, drawn towards outputs, or forgotten with new weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.data import Split, digits
from remanence.models import small_conv
from remanence.tasks import Recipe
from remanence.unlearning import FoldTargets, make_method

RECIPE = Recipe(epochs=1, learning_rate=0.05, batch_size=20)


@pytest.fixture
def data(tmp_path: Path) -> Split:
    """Sixty examples whose privacy loss is their position; the first thirty are to be forgotten."""
    train, test = digits()
    train, random = train.take(train.ids[:60]), torch.Generator().manual_seed(0)
    folds = [(np.ones(60, bool), torch.randn(60, 10, generator=random))]
    FoldTargets.from_folds(train, folds, losses=np.arange(60.0)).write(tmp_path / "targets")
    return Split(train, test.take(test.ids[:20]), rm.ForgetSet("f", train.ids[:30]))


def weights(name: str, data: Split, steps: int, **options: Any) -> Tensor:
    """The weights after some steps."""
    torch.manual_seed(0)
    model: nn.Module = small_conv(width=4)
    taken = make_method(name, options, RECIPE)(model, data, seed=3)
    for _ in range(steps):
        next(taken)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("losses", "alone", "options"),
    [
        ({"easy": 100.0}, "finetune", {"lr": 0.02}),
        ({}, "out_of_fold", {"lr": 0.02}),
        ({"gentle": 1.0}, "out_of_fold", {}),
        ({"hard": 0.0, "distillation": 0.0}, "reset", {}),
        ({"hard": 0.0, "harder": "shrink_perturb"}, "shrink_perturb", {}),
    ],
)
def test_a_set_of_one_kind_is_unlearned_by_that_method_alone(
    data: Split, tmp_path: Path, losses: dict[str, Any], alone: str, options: dict[str, Any]
) -> None:
    targets = {"targets": str(tmp_path / "targets")}
    needed = targets if alone == "out_of_fold" else {}
    routed = weights("routed", data, 2, **targets, **losses)
    torch.testing.assert_close(routed, weights(alone, data, 2, **options | needed))


def test_only_the_units_of_hard_examples_and_the_outputs_of_middle_ones_count(
    data: Split, tmp_path: Path
) -> None:
    targets = str(tmp_path / "targets")
    mixed = weights("routed", data, 1, targets=targets, easy=10.0, hard=20.0)
    for other in ({"easy": 0.0, "hard": 20.0}, {"easy": 10.0, "hard": 25.0}, {"easy": 10.0}):
        assert not torch.allclose(mixed, weights("routed", data, 1, targets=targets, **other))


def test_it_needs_a_calibration(data: Split, tmp_path: Path) -> None:
    with pytest.raises(rm.InputError, match="routed needs `targets`"):
        make_method("routed", {}, RECIPE)
    for wrong in ({"fraction": 0.0}, {"distillation": 1.0}, {"weight": -1.0}, {"harder": "salun"}):
        with pytest.raises(rm.InputError):
            make_method("routed", {"targets": "here", **wrong}, RECIPE)
