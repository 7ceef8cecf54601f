import math

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.audit import METRICS, Evaluation, Outputs, evaluate
from remanence.data import Split, digits
from remanence.models import small_conv


def outputs(confidences: np.ndarray) -> Outputs:
    """Two-class outputs in which the true class, 0, has these probabilities."""
    chosen = torch.tensor(confidences, dtype=torch.float64)
    logits = torch.stack([chosen.logit(), torch.zeros_like(chosen)], dim=1)
    return Outputs(logits, torch.zeros(len(chosen), dtype=torch.int64))


def evaluation(forget: np.ndarray, retain: np.ndarray, test: np.ndarray) -> Evaluation:
    return Evaluation(outputs(forget), outputs(retain), outputs(test))


def test_confidence_and_accuracy_of_known_outputs() -> None:
    known = outputs(np.array([0.9, 0.4, 0.6]))
    np.testing.assert_allclose(known.confidence.numpy(), [0.9, 0.4, 0.6])
    assert known.accuracy == pytest.approx(2 / 3)


def test_accuracies_read_their_own_part() -> None:
    seen = evaluation(np.array([0.9, 0.1]), np.array([0.9, 0.9]), np.array([0.9, 0.1, 0.1, 0.9]))
    assert METRICS["ua"](seen) == 0.5
    assert METRICS["ra"](seen) == 1.0
    assert METRICS["test"](seen) == 0.5


def test_membership_separates_what_can_be_separated() -> None:
    rng = np.random.default_rng(0)
    members, outsiders = rng.uniform(0.9, 0.99, 3000), rng.uniform(0.1, 0.5, 1000)
    assert METRICS["mia"](evaluation(members[:50], members, outsiders)) == 0.0
    assert METRICS["mia"](evaluation(outsiders[:50], members, outsiders)) == 1.0
    assert METRICS["mia"](evaluation(np.r_[members[:30], outsiders[:10]], members, outsiders)) == 0.25


def test_auc_is_the_share_of_ordered_pairs() -> None:
    rng = np.random.default_rng(0)
    forget, test = np.round(rng.uniform(0.3, 0.9, 40), 1), np.round(rng.uniform(0.1, 0.7, 30), 1)
    pairs = np.sign(forget[:, None] - test[None, :])
    seen = evaluation(forget, forget, test)
    assert METRICS["mia_auc"](seen) == pytest.approx(np.mean(pairs > 0) + np.mean(pairs == 0) / 2)
    assert METRICS["mia_auc"](evaluation(test, forget, test)) == pytest.approx(0.5)


def test_log_odds_are_told_apart_where_confidences_are_saturated() -> None:
    """Nearly all confidences are close to 1; the paper's form on them is by name."""
    rng = np.random.default_rng(0)
    members, outsiders = (1 / (1 + np.exp(-rng.normal(mean, 3, 4000))) for mean in (9, 7))
    seen = evaluation(members[:50], members, outsiders)
    assert METRICS["mia_accuracy"](seen) == pytest.approx(0.63, abs=0.02)
    assert METRICS["mia_confidence_accuracy"](seen) < 0.58
    assert "log-odds" in METRICS["mia"].meaning
    assert "as the paper does" in METRICS["mia_confidence"].meaning


def test_log_odds_cannot_see_that_hard_examples_are_forgotten() -> None:
    """Hard examples are less certain than typical members even while memorized: why criteria read the confidence."""
    rng = np.random.default_rng(0)

    def confidences(mean: float, sd: float, size: int) -> np.ndarray:
        return 1 / (1 + np.exp(-rng.normal(mean, sd, size)))

    members = confidences(9, 2, 2000)
    outsiders = np.r_[confidences(8.5, 2, 1900), confidences(-2, 1, 100)]
    memorized, unseen = (evaluation(confidences(mean, 1, 200), members, outsiders) for mean in (4.0, -1.0))
    assert METRICS["mia"](memorized) == pytest.approx(METRICS["mia"](unseen), abs=0.05)
    assert METRICS["mia_confidence"](unseen) > METRICS["mia_confidence"](memorized) + 0.3


def test_membership_is_the_same_twice_and_balanced() -> None:
    rng = np.random.default_rng(1)
    same = rng.uniform(0.2, 0.9, 6000)
    seen = evaluation(same[:2000], same[2000:5000], same[5000:])
    assert METRICS["mia"](seen) == METRICS["mia"](seen)
    # with nothing to tell them apart, a balanced attack must not call nearly everyone one thing by size alone
    assert 0.2 < METRICS["mia"](seen) < 0.8


def test_membership_refuses_numbers_that_are_none() -> None:
    with pytest.raises(rm.errors.NumericalError, match="not finite"):
        METRICS["mia"](evaluation(np.array([0.5]), np.array([math.nan, 0.5]), np.array([0.5, 0.6])))


def test_one_pass_in_evaluation_mode_and_the_mode_comes_back() -> None:
    train, test = digits()
    split = Split(train, test, rm.ForgetSet("f", train.ids[:10]))
    model = nn.Sequential(nn.Dropout(0.5), small_conv(width=4)).train()
    first, second = evaluate(model, split), evaluate(model, split)
    assert torch.equal(first.test.logits, second.test.logits)
    assert model.training
    assert len(first.forget.labels) == 10
    assert len(first.retain.labels) == len(train) - 10
