"""Weight matching beside `rebasin`, an independent implementation of the same method."""

import contextlib
import copy
import io

import pytest
import torch
from torch import nn

from remanence.audit.permutations import match_permutations, permuted, trace_symmetry
from remanence.data import digits
from remanence.models import mlp
from remanence.training import Recipe, train_steps

rebasin = pytest.importorskip("rebasin", reason="rebasin is not installed; it is in the dev extra")

TRAIN, TEST = digits()


def trained(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = mlp(64, (48, 32))
    for _ in train_steps(model, TRAIN, Recipe(4, 0.05), seed=seed):
        pass
    return model.eval()


def theirs(reference: nn.Module, model: nn.Module) -> nn.Module:
    aligned = copy.deepcopy(model)
    flat = TEST.inputs[:8]
    with contextlib.redirect_stdout(io.StringIO()):
        search = rebasin.PermutationCoordinateDescent(copy.deepcopy(reference), aligned, flat)
        search.rebasin()
    return aligned


def distance(a: nn.Module, b: nn.Module) -> float:
    return sum(
        float((p - q).detach().double().square().sum())
        for p, q in zip(a.parameters(), b.parameters(), strict=True)
    )


def test_both_undo_the_same_permutation() -> None:
    model = trained(0)
    symmetry = trace_symmetry(model, TEST.inputs)
    moved = permuted(model, symmetry, symmetry.random(5))
    ours = match_permutations(model, moved, TEST.inputs)
    for ours_, theirs_ in zip(ours.parameters(), theirs(model, moved).parameters(), strict=True):
        assert torch.equal(ours_, theirs_)


def test_between_independent_models_ours_is_as_close() -> None:
    one, other = trained(0), trained(1)
    apart = distance(one, other)
    ours = distance(one, match_permutations(one, other, TEST.inputs))
    peer = distance(one, theirs(one, other))
    assert peer < 0.9 * apart
    assert ours <= peer * (1 + 1e-3)
    assert ours > 0.9 * peer
