"""Metrics that compare with oracles or shadows, and the one pass that all metrics share."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.audit import METRICS, Context, Evaluation, Outputs, ShadowTable, evaluate, metrics_named
from remanence.audit.auditing import Finding
from remanence.audit.klom import klom_by_example, klom_null
from remanence.audit.relearning import Recovery, Relearned
from remanence.audit.u_lira import accuracy_null, attack_accuracy, likelihood_ratios
from remanence.data import Split, digits
from remanence.models import mlp
from remanence.tasks.canaries import Canaries
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
    found = tuple(evaluate(each, SPLIT) for each in models(5))
    same = Context(oracles=found, ensemble=found[1:])
    assert METRICS["klom"](evaluate(models(1)[0], SPLIT, same)) == 0


def test_klom_by_hand() -> None:
    """Two oracles in the first and last bin, two models in the last: KL of (½, ½) from (ε, 1)."""
    oracles, unlearned = np.array([[0.0], [1.0]]), np.array([[1.0], [1.0]])
    e, total = 1e-5, 1 + 20 * 1e-5
    half, whole, none = (0.5 + e) / total, (1 + e) / total, e / total
    expected = half * np.log(half / none) + half * np.log(half / whole)
    assert klom_by_example(unlearned, oracles)[0] == pytest.approx(expected)
    assert klom_by_example(np.zeros((3, 2)), np.zeros((3, 2))).tolist() == [0, 0]  # no range at all


def test_klom_compares_equally_many_models_with_a_null() -> None:
    """Sets of different sizes differ by their empty bins alone; a null of the same sizes has them too."""
    with pytest.raises(rm.InputError, match="equally many models and oracles"):
        klom_by_example(np.zeros((3, 2)), np.zeros((2, 2)))
    found = tuple(evaluate(model, SPLIT) for model in models(12))
    same = evaluate(models(1)[0], SPLIT, Context(oracles=found[6:], ensemble=found[1:5]))
    null = klom_null(same)
    assert abs(METRICS["klom"](same) - null.mean) < 4 * null.sd, "models that are oracles"
    assert null.mean > 0.5, "with five models of each, most bins are empty"
    trained = Context(oracles=found[6:], ensemble=tuple(shifted(model, 4.0) for model in models(5)[1:]))
    other = shifted(models(1)[0], 4.0, trained)
    null = klom_null(other)
    assert METRICS["klom"](other) > null.mean + null.tolerance


def shifted(model: nn.Module, by: float, context: Context = Context()) -> Evaluation:  # noqa: B008
    """An evaluation whose margins on the forget set are larger."""
    seen = evaluate(model, SPLIT, context)
    logits = seen.forget.logits.clone()
    logits[torch.arange(len(logits)), seen.forget.labels] += by
    return replace(seen, forget=Outputs(logits, seen.forget.labels))


def test_klom_of_too_few_models_is_no_number() -> None:
    found = tuple(evaluate(model, SPLIT) for model in models(6))
    for context in (Context(oracles=found), Context(oracles=found[:3], ensemble=found)):
        with pytest.raises(rm.InputError, match="at least 5, and as many models"):
            METRICS["klom"](evaluate(models(1)[0], SPLIT, context))


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
    """Whatever is asked, every example goes through the model once; GUS adds the clean forget examples, canaries
    themselves."""
    poison = draw_poison(TRAIN, SPLIT.forget.ids, seed=0)
    oracles = tuple(evaluate(each, SPLIT) for each in models(20)[1:])
    table = ShadowTable(
        SPLIT.forget.ids,
        np.arange(8)[:, None] % 2 == np.zeros(100),
        np.random.default_rng(0).normal(size=(8, 100)),
    )
    recovery = Recovery((0, 1), (0.5, 1.0), (0.0, 2.0))
    context = Context(
        oracles=oracles,
        ensemble=oracles,
        poison=poison,
        clean=TRAIN,
        shadows=table,
        before=oracles[0],
        people={example: str(example % 7) for example in TRAIN.ids.tolist()},
        relearned=Relearned((recovery,), recovery),
        canaries=Canaries(SPLIT.retain.take(SPLIT.retain.ids[:20]), np.arange(20) % 2 == 0),
    )
    model = Counting(models(1)[0])
    found = evaluate(model, SPLIT, context)
    for metric in METRICS.values():
        if metric.needs not in ("poison", "canaries"):
            metric(found)
    everyone = len(TRAIN) + len(TEST)
    assert model.examples == everyone
    assert model.calls == sum(-(-len(part) // 256) for part in (SPLIT.forget, SPLIT.retain, SPLIT.test))
    for name in ("gus", "gus_z", "gus_printed"):
        METRICS[name](found)
    assert model.examples == everyone + 100
    METRICS["one_run_epsilon"](found)
    assert model.examples == everyone + 100 + 20


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
    assert attack_accuracy(nothing).value == pytest.approx(0.5, abs=0.03)
    leaking = ShadowTable(np.arange(200), member, draw.normal(size=(32, 200)) + 3 * member)
    assert attack_accuracy(leaking).value > 0.9


def leaky_table(draw: np.random.Generator, shadows: int, shift: float, examples: int = 200) -> ShadowTable:
    """Shadows in pairs that share the examples; models differ as a whole, and examples differ."""
    halves = draw.random((shadows // 2, examples)) < 0.5
    member = np.concatenate([halves, ~halves])
    noise = draw.normal(size=member.shape) + 0.5 * draw.normal(size=(shadows, 1)) + draw.normal(size=examples)
    return ShadowTable(np.arange(examples), member, 3 * noise + 3 * np.sqrt(1.25) * shift * member)


LEAK = 0.5
"""In standard deviations: an attack that knows both means finds Φ(1/4) = 0.599."""


@pytest.mark.parametrize("shadows", [6, 8, 16, 24])
def test_u_lira_finds_a_known_leak_with_few_shadows(shadows: int) -> None:
    """An attack on each shadow with the others, its own kind one short, finds 0.516 at 6 shadows: no leak."""
    draw = np.random.default_rng(shadows)
    tables = [leaky_table(draw, shadows, LEAK) for _ in range(12)]
    found = [attack_accuracy(table) for table in tables]
    mean = float(np.mean([accuracy.value for accuracy in found]))
    # from 32 on every shadow is attacked with the others, whose means still have an error
    assert mean == pytest.approx(0.599, abs=0.02 if shadows < 32 else 0.03)
    assert all(0 < accuracy.sd < 0.2 for accuracy in found)
    words = [verdict_of(table) for table in tables]
    assert words.count("within") <= 1
    assert words.count("below") == 0
    assert words.count("above") >= 9


@pytest.mark.parametrize("shadows", [6, 16, 24])
def test_u_lira_finds_nothing_where_nothing_leaks(shadows: int) -> None:
    draw = np.random.default_rng(shadows)
    tables = [leaky_table(draw, shadows, 0.0) for _ in range(20)]
    values = [attack_accuracy(table).value for table in tables]
    assert np.mean(values) == pytest.approx(0.5, abs=0.03), "without a bias of the left-out shadow"
    words = [verdict_of(table) for table in tables]
    assert words.count("above") <= 4, "5 % of 20"
    assert words.count("below") == 0, "an accuracy below chance is no leak"
    assert words.count("within") >= (3 if shadows == 6 else 14), "six rarely show that nothing leaks"


def verdict_of(table: ShadowTable) -> str:
    accuracy, null = attack_accuracy(table), accuracy_null(table)
    metric = METRICS["u_lira_accuracy"]
    finding = Finding(
        metric, accuracy.value, null.mean, null.sd, null.tolerance, accuracy.sd, null.conclusive
    )
    return finding.verdict


def test_too_few_shadows_or_examples_show_nothing() -> None:
    draw = np.random.default_rng(0)
    few = leaky_table(draw, 6, 0.0, examples=4)
    assert verdict_of(few) == "unknown", "four examples cannot show that nothing leaks"
    assert verdict_of(leaky_table(draw, 6, 6.0, examples=4)) == "above", "but that everything does"
    with pytest.raises(rm.InputError, match="at least 3 shadow models trained with each example"):
        attack_accuracy(leaky_table(draw, 4, 0.0))


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
