"""Gaussian unlearning score: of models that were really trained on poison, and of ones that were not."""

import functools
import math

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.audit import METRICS, Context, Evaluation, evaluate
from remanence.audit.gus import gus_scores
from remanence.data import Split, digits
from remanence.forgetting import random_set
from remanence.models import small_conv
from remanence.tasks.poison import Poison, draw_poison
from remanence.training import Recipe, train_steps

TRAIN, TEST = digits()
IDS = random_set(TRAIN.ids, 200, 0).ids
POISON = draw_poison(TRAIN, IDS, seed=0)
SPLIT = Split(POISON.applied(TRAIN), TEST, rm.ForgetSet("poisoned", IDS))


@functools.cache
def judged(kind: str) -> Evaluation:
    data = {"poisoned": SPLIT.train, "clean": TRAIN, "oracle": SPLIT.retain}[kind]
    torch.manual_seed(1)
    model = small_conv()
    for _ in train_steps(model, data, Recipe(20, 0.05, 32), seed=1):
        pass
    return evaluate(model, SPLIT, Context(poison=POISON, clean=TRAIN))


def test_a_model_trained_on_the_noise_shows_it_and_others_do_not() -> None:
    assert METRICS["gus_z"](judged("poisoned")) < -3.5
    for kind in ("clean", "oracle"):
        assert abs(METRICS["gus_z"](judged(kind))) < 2.58


def test_the_three_forms_differ_by_known_factors() -> None:
    found = judged("poisoned")
    assert METRICS["gus_z"](found) == pytest.approx(math.sqrt(200) * METRICS["gus"](found))
    assert METRICS["gus_printed"](found) == pytest.approx(math.sqrt(0.062) * METRICS["gus"](found))


def test_scores_are_standard_normal_for_noise_that_nobody_saw() -> None:
    model = judged("clean").model
    assert model is not None
    noise = draw_poison(TRAIN, TRAIN.ids, seed=9).noise
    scores = gus_scores(model, TRAIN, noise, 0.062)
    assert abs(scores.mean()) < 2.58 / math.sqrt(len(scores))
    assert scores.std() == pytest.approx(1, abs=0.06)


def test_it_is_the_plain_formula_where_the_plain_formula_works() -> None:
    torch.manual_seed(0)
    model, few = small_conv(), TRAIN.take(IDS[:7])
    inputs = few.inputs.clone().requires_grad_()
    [gradient] = torch.autograd.grad(
        nn.functional.cross_entropy(model(inputs), few.labels, reduction="sum"), inputs
    )
    plain = (
        (gradient * POISON.noise[:7]).flatten(1).sum(1) / gradient.flatten(1).norm(dim=1) / math.sqrt(0.062)
    )
    np.testing.assert_allclose(gus_scores(model, few, POISON.noise[:7], 0.062), plain.numpy(), rtol=1e-4)


def test_certainty_does_not_make_the_gradient_vanish() -> None:
    """Logits a hundred times larger: the loss is zero in single precision, the direction is still there."""
    few = TRAIN.take(IDS[:50])
    torch.manual_seed(0)
    base = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with torch.no_grad():
        base[1].weight *= 400
        right = base(few.inputs).argmax(1)
    sure = rm.Examples(few.ids, few.inputs, right, few.class_names)
    scores = gus_scores(base, sure, POISON.noise[:50], 0.062)
    assert (np.abs(scores) > 1e-6).all()
    assert scores.std() == pytest.approx(1, abs=0.3)


def test_runs_without_poison_get_one_sentence() -> None:
    model = judged("clean").model
    assert model is not None
    with pytest.raises(rm.InputError, match="trained with poison"):
        METRICS["gus"](evaluate(model, SPLIT))
    elsewhere = Poison(TRAIN.ids[:0], torch.zeros(0, 1, 8, 8), 0.062)
    with pytest.raises(rm.InputError, match="none of 'poisoned' is among the 0"):
        METRICS["gus"](evaluate(model, SPLIT, Context(poison=elsewhere, clean=TRAIN)))
