"""Metrics that compare with oracles or shadows, and the one pass that all metrics share."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.audit import METRICS, Context, ShadowTable, evaluate, metrics_named
from remanence.audit.klom import klom_by_example
from remanence.audit.u_lira import attack_accuracy, likelihood_ratios
from remanence.data import Split, digits
from remanence.models import mlp
from remanence.tasks.poison import draw_poison

TRAIN, TEST = digits()
SPLIT = Split(TRAIN, TEST, rm.ForgetSet("f", TRAIN.ids[:100]))


def models(n: int) -> list[nn.Module]:
    made = []
    for seed in range(n):
        torch.manual_seed(seed)
        made.append(mlp(64, (32,)))
    return made


def test_klom_of_a_set_with_itself_is_zero() -> None:
    margins = np.random.default_rng(0).normal(0, 5, (30, 12))
    np.testing.assert_array_equal(klom_by_example(margins, margins[::-1]), 0)
    found = tuple(evaluate(each, SPLIT) for each in models(4))
    same = Context(oracles=found, ensemble=found[1:])
    assert METRICS["klom"](evaluate(models(1)[0], SPLIT, same)) == 0


def test_klom_by_hand() -> None:
    """Two oracles in the first and last bin, two models in the last: KL of (½, ½) from (ε, 1)."""
    oracles, unlearned = np.array([[0.0], [1.0]]), np.array([[1.0], [1.0]])
    e, total = 1e-5, 1 + 20 * 1e-5
    half, whole, none = (0.5 + e) / total, (1 + e) / total, e / total
    expected = half * np.log(half / none) + half * np.log(half / whole)
    assert klom_by_example(unlearned, oracles)[0] == pytest.approx(expected)
    assert klom_by_example(np.zeros((3, 2)), np.zeros((2, 2))).tolist() == [0, 0]  # no range at all


def test_klom_grows_with_distance() -> None:
    draw = np.random.default_rng(1)
    oracles = draw.normal(0, 1, (100, 50))
    near, far = (klom_by_example(draw.normal(shift, 1, (100, 50)), oracles).mean() for shift in (0, 3))
    assert near < 1 < far


def test_disagreement_counts_other_answers() -> None:
    first, second = models(2)
    oracles = tuple(evaluate(each, SPLIT) for each in (first, second))
    same = METRICS["disagreement"](evaluate(first, SPLIT, Context(oracles=oracles[:1])))
    assert same == 0
    other = METRICS["disagreement"](evaluate(first, SPLIT, Context(oracles=oracles[1:])))
    assert other == (oracles[0].forget.predicted != oracles[1].forget.predicted).double().mean()
    assert METRICS["disagreement"](evaluate(first, SPLIT, Context(oracles=oracles))) == pytest.approx(
        other / 2
    )


def test_metrics_say_what_they_miss() -> None:
    bare = evaluate(models(1)[0], SPLIT)
    for name, words in (
        ("klom", "needs oracles"),
        ("disagreement", "needs oracles"),
        ("u_lira", "needs shadow"),
    ):
        with pytest.raises(rm.InputError, match=words):
            METRICS[name](bare)
    with pytest.raises(rm.errors.UnknownNameError, match="Did you mean 'mia'"):
        metrics_named(["mie"])


def test_every_metric_explains_itself() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.meaning
        assert metric.at_oracle
        assert metric.better in ("oracle", "lower", "higher")


class Counting(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.calls, self.examples = inner, 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.examples += len(x)
        out: Tensor = self.inner(x)
        return out


def test_all_metrics_share_one_pass() -> None:
    """Whatever is asked, every example goes through the model once; GUS adds the clean forget examples."""
    poison = draw_poison(TRAIN, SPLIT.forget.ids, seed=0)
    oracles = tuple(evaluate(each, SPLIT) for each in models(3)[1:])
    table = ShadowTable(
        SPLIT.forget.ids,
        np.arange(8)[:, None] % 2 == np.zeros(100),
        np.random.default_rng(0).normal(size=(8, 100)),
    )
    context = Context(oracles=oracles, poison=poison, clean=TRAIN, shadows=table)
    model = Counting(models(1)[0])
    found = evaluate(model, SPLIT, context)
    for metric in METRICS.values():
        if metric.needs != "poison":
            metric(found)
    everyone = len(TRAIN) + len(TEST)
    assert model.examples == everyone
    assert model.calls == sum(-(-len(part) // 256) for part in (SPLIT.forget, SPLIT.retain, SPLIT.test))
    for name in ("gus", "gus_z", "gus_printed"):
        METRICS[name](found)
    assert model.examples == everyone + 100


def test_u_lira_ratios_by_hand() -> None:
    member = np.array([[True], [True], [False], [False]])
    signal = np.array([[4.0], [6.0], [-1.0], [1.0]])
    table = ShadowTable(np.array([7]), member, signal)
    # means 5 and 0, variances 2 and 2
    assert likelihood_ratios(table, np.array([4.0]))[0] == pytest.approx(-0.5 * (1 - 16) / 2)
    assert likelihood_ratios(table, np.array([2.5]))[0] == pytest.approx(0)


def test_u_lira_knows_when_nothing_can_be_told() -> None:
    draw = np.random.default_rng(0)
    member = np.arange(32)[:, None] % 2 == draw.integers(2, size=200)
    nothing = ShadowTable(np.arange(200), member, draw.normal(size=(32, 200)))
    assert attack_accuracy(nothing) == pytest.approx(0.5, abs=0.03)
    shifted = ShadowTable(np.arange(200), member, draw.normal(size=(32, 200)) + 3 * member)
    assert attack_accuracy(shifted) > 0.9


def test_shadows_must_be_enough() -> None:
    with pytest.raises(rm.InputError, match="two shadow models trained with it and two without"):
        ShadowTable(np.arange(2), np.ones((4, 2), bool), np.zeros((4, 2)))
    with pytest.raises(rm.InputError, match="one row per shadow model"):
        ShadowTable(np.arange(2), np.ones((4, 3), bool), np.zeros((4, 2)))


def test_evaluation_keeps_the_mode_of_every_module() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), mlp(64, (8,)))
    model.train()
    model[1].eval()
    before = copy.deepcopy([each.training for each in model.modules()])
    evaluate(model, SPLIT)
    assert [each.training for each in model.modules()] == before
