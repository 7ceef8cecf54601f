"""RMIA, BaVarIA and the SWAP test: known answers, power with few models, and what they miss."""

import numpy as np
import pytest
import torch
from scipy.stats import t

import remanence as rm
from remanence.audit import METRICS, Context, Evaluation, Outputs, ShadowTable, evaluate
from remanence.audit.bavaria import predictives
from remanence.audit.rmia import relative_confidence
from remanence.audit.swap import swap_advantage
from remanence.data import Split, digits
from remanence.models import mlp

Floats = np.ndarray


def outputs(log_odds: Floats) -> Outputs:
    """Two-class outputs in which the true class, 0, has these log-odds."""
    chosen = torch.tensor(log_odds, dtype=torch.float64)
    return Outputs(
        torch.stack([chosen, torch.zeros_like(chosen)], dim=1), torch.zeros(len(chosen), dtype=torch.int64)
    )


def evaluation(forget: Floats, test: Floats, context: Context | None = None) -> Evaluation:
    return Evaluation(outputs(forget), outputs(test), outputs(test), context=context or Context())


def pairs(draw: np.random.Generator, shadows: int, examples: int) -> np.ndarray:
    """Memberships in pairs with complementary halves."""
    first = np.stack([draw.permutation(examples) < examples // 2 for _ in range(shadows // 2)])
    return np.stack([first, ~first], axis=1).reshape(shadows, examples)


def test_rmia_by_the_definition_of_its_score() -> None:
    """The share of the population z with LR(x, z) ≥ γ, with the threshold that 5 % of the population exceed."""
    draw = np.random.default_rng(7)
    forget, test, references = draw.normal(1, 2, 60), draw.normal(2, 2, 200), draw.normal(1, 2, (2, 260))
    oracles = tuple(evaluation(row[:60], row[60:]) for row in references)
    found = METRICS["rmia"](evaluation(forget, test, Context(oracles=oracles)))

    def probability(log_odds: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-log_odds)))

    expected = 0.5 * (1.3 * probability(references).mean(axis=0) + 0.7)
    ratio = probability(np.concatenate([forget, test])) / expected
    score = np.array([(x / ratio[60:] >= 1).mean() for x in ratio])
    threshold = np.sort(score[60:])[-11]  # ten of 200 are above
    assert found == pytest.approx((score[:60] > threshold).mean())


def test_confidence_relative_to_references_by_hand() -> None:
    # P(x) = ½ (1.3 · 0.5 + 0.7)
    expected = 0.9 / (0.5 * (1.3 * 0.5 + 0.7))
    np.testing.assert_allclose(relative_confidence(np.array([0.9]), np.array([[0.4], [0.6]])), [expected])


def test_rmia_finds_a_leak_with_one_reference_model() -> None:
    """Hard examples that only a model trained on them gets right; easy ones leave nothing to see."""
    draw = np.random.default_rng(0)
    hard, test = draw.normal(-1, 1, 200), draw.normal(3, 1, 400)

    def noisy(values: Floats) -> Floats:
        return values + draw.normal(0, 0.3, len(values))

    reference = Context(oracles=(evaluation(noisy(hard), noisy(test)),))
    leaking = METRICS["rmia"](evaluation(noisy(hard + 6), noisy(test), reference))
    retrained = METRICS["rmia"](evaluation(noisy(hard), noisy(test), reference))
    assert leaking > 0.95
    assert retrained < 0.25


def test_rmia_says_what_it_needs() -> None:
    few = evaluation(np.zeros(3), np.zeros(10))
    with pytest.raises(rm.InputError, match="at least one oracle"):
        METRICS["rmia"](few)
    with pytest.raises(rm.InputError, match="at least 20 test examples; got 10"):
        METRICS["rmia"](evaluation(np.zeros(3), np.zeros(10), Context(oracles=(few,))))


def test_bavaria_densities_are_student_t() -> None:
    draw = np.random.default_rng(0)
    member = np.arange(8)[:, None] % 2 == np.zeros(50)
    signal = draw.normal(size=(8, 50)) * draw.gamma(2, 1, 50)
    target = draw.normal(size=50)
    for found in predictives(member, signal):
        expected = t.logpdf(target, found.freedom, found.location, found.scale)
        np.testing.assert_allclose(found.log_density(target), expected)


def test_bavaria_pools_equal_variances_and_separates_unequal_ones() -> None:
    """With one true variance the prior is worth far more than the few shadows; with many it gives way."""
    draw = np.random.default_rng(1)
    member = np.arange(16)[:, None] % 2 == np.zeros(2000)
    equal, _ = predictives(member, draw.normal(0, 2, (16, 2000)))
    assert equal.freedom[0] > 100
    np.testing.assert_allclose(equal.scale, 2 * np.sqrt(1 + 1 / 8), rtol=0.15)
    deviations = np.where(np.arange(2000) < 1000, 0.5, 5.0)
    unequal, _ = predictives(member, draw.normal(size=(16, 2000)) * deviations)
    assert unequal.freedom[0] < 15
    assert np.median(unequal.scale[:1000]) < 2 < 3 < np.median(unequal.scale[1000:])


def test_bavaria_works_with_one_shadow_of_each_kind() -> None:
    draw = np.random.default_rng(2)
    member = pairs(draw, 2, 400)
    level = draw.normal(0, 3, 400)
    signal = level + 4 * member + draw.normal(0, 1, (2, 400))
    inside, outside = predictives(member, signal)
    ratio = [
        inside.log_density(target) - outside.log_density(target)
        for target in (level + 4 + draw.normal(0, 1, 400), level + draw.normal(0, 1, 400))
    ]
    assert (ratio[0] > 0).mean() > 0.85
    assert (ratio[1] > 0).mean() < 0.15
    with pytest.raises(rm.InputError, match="one shadow model of each kind"):
        predictives(np.ones((2, 3), bool), np.zeros((2, 3)))


def test_bavaria_reads_the_examples_of_the_table() -> None:
    train, test = digits()
    split = Split(train, test, rm.ForgetSet("f", train.ids[:6]))
    torch.manual_seed(0)
    model = mlp(64, (8,))
    seen = evaluate(model, split).forget.margin.numpy()
    member = np.arange(4)[:, None] % 2 == np.zeros(3)
    # shadows with the examples in another order; where they were trained on, their signal is the model's
    rows = [5, 0, 2]
    signal = np.where(member, seen[rows], seen[rows] - 5) + np.array([[-1.0], [-1.0], [1.0], [1.0]]) / 10
    found = evaluate(model, split, Context(shadows=ShadowTable(split.forget.ids[rows], member, signal)))
    assert METRICS["bavaria"](found) == 1
    other = ShadowTable(split.retain.ids[:3], member, signal)
    with pytest.raises(rm.errors.DataError, match="not in this data set"):
        METRICS["bavaria"](evaluate(model, split, Context(shadows=other)))
    with pytest.raises(rm.InputError, match="needs shadow models"):
        METRICS["bavaria"](evaluate(model, split))


def test_swap_cancels_what_makes_one_half_harder() -> None:
    """Examples differ a lot, but nothing depends on having been trained on: advantage 0."""
    draw = np.random.default_rng(3)
    level = draw.normal(0, 5, 300)
    ids = np.arange(300)
    values = []
    for _ in range(40):
        member = pairs(draw, 4, 300)
        values.append(swap_advantage(ShadowTable(ids, member, level + draw.normal(0, 1, (4, 300)))))
    assert abs(np.mean(values)) < 0.01
    assert np.std(values) < 0.06


def test_swap_sees_remembering_and_overforgetting_by_the_closed_form() -> None:
    """Signals N(0, 1) and N(±1, 1): the best threshold has advantage 2Φ(½) − 1 = 0.383."""
    draw = np.random.default_rng(4)
    for shift in (1.0, -1.0):
        member = pairs(draw, 8, 2000)
        table = ShadowTable(np.arange(2000), member, draw.normal(size=(8, 2000)) + shift * member)
        assert swap_advantage(table) == pytest.approx(0.383, abs=0.03)


def test_four_shadows_are_enough_for_bavaria_and_swap_but_not_for_u_lira() -> None:
    train, test = digits()
    split = Split(train, test, rm.ForgetSet("f", train.ids[:6]))
    draw = np.random.default_rng(5)
    table = ShadowTable(split.forget.ids, pairs(draw, 4, 6), draw.normal(size=(4, 6)))
    found = evaluate(mlp(64, (8,)), split, Context(shadows=table))
    assert 0 <= METRICS["bavaria"](found) <= 1
    assert -1 <= METRICS["swap"](found) <= 1
    for name in ("u_lira", "u_lira_accuracy"):
        with pytest.raises(rm.InputError, match=f"`{name}` needs at least 6 shadow models; got 4"):
            METRICS[name](found)


def test_swap_needs_pairs() -> None:
    member = np.array([[True, True], [True, True], [False, False], [False, False]])
    with pytest.raises(rm.InputError, match="complementary halves"):
        swap_advantage(ShadowTable(np.arange(2), member, np.zeros((4, 2))))
    with pytest.raises(rm.InputError, match="SWAP test needs shadow models"):
        METRICS["swap"](evaluation(np.zeros(3), np.zeros(10)))
