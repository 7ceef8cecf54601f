"""Harm to those who stay, and the three-sample test: known answers and error rates."""

import numpy as np
import pytest
import torch

import remanence as rm
from remanence.audit import METRICS, Context, Evaluation, Outputs
from remanence.audit.relative_mmd import BANDWIDTH, mean_embedding
from remanence.data import Split, digits

Floats = np.ndarray


def classes(draw: np.random.Generator, n: int, shift: float = 0.0) -> Outputs:
    """Three-class outputs with random logits; the labels are fixed."""
    logits = torch.from_numpy(draw.normal(0, 1, (n, 3)))
    labels = torch.arange(n) % 3
    logits[torch.arange(n), labels] += shift
    return Outputs(logits, labels)


def model(draw: np.random.Generator, n: int = 60, shift: float = 0.0) -> Evaluation:
    return Evaluation(*(classes(draw, size, shift) for size in (n, 4, 4)))


def with_oracles(evaluation: Evaluation, oracles: list[Evaluation]) -> Evaluation:
    return Evaluation(
        evaluation.forget, evaluation.retain, evaluation.test, context=Context(oracles=tuple(oracles))
    )


def test_the_embedding_approximates_the_kernel() -> None:
    draw = np.random.default_rng(0)
    near, far = model(draw, 40), model(draw, 40, shift=2.0)
    errors = []
    for evaluation in (near, far):
        outputs = evaluation.forget
        errors.append((outputs.logits.softmax(1) - torch.nn.functional.one_hot(outputs.labels, 3)).numpy())

    def kernel(a: Floats, b: Floats) -> float:
        squares = np.square(a[:, None] - b[None]).sum(axis=2)
        return float(np.exp(-squares / (2 * BANDWIDTH**2)).mean())

    exact = kernel(errors[0], errors[0]) + kernel(errors[1], errors[1]) - 2 * kernel(errors[0], errors[1])
    approximate = np.square(mean_embedding(near) - mean_embedding(far)).sum()
    assert approximate == pytest.approx(exact, rel=0.25)


def test_relative_mmd_is_one_for_an_oracle_and_large_for_another_model() -> None:
    draw = np.random.default_rng(1)
    values = {
        shift: np.mean(
            [
                METRICS["relative_mmd"](
                    with_oracles(model(draw, shift=shift), [model(draw) for _ in range(4)])
                )
                for _ in range(30)
            ]
        )
        for shift in (0.0, 2.0)
    }
    assert values[0.0] == pytest.approx(1.0, abs=0.2)
    assert values[2.0] > 3


def test_wrong_labels_are_far_though_confidence_is_alike() -> None:
    """As confident as the oracles, of another class: only outputs with their labels tell."""
    draw = np.random.default_rng(2)
    oracles = [model(draw, shift=2.0) for _ in range(4)]
    other = model(draw, shift=2.0).forget
    moved = Outputs(other.logits.roll(1, dims=1), other.labels)
    wrong = Evaluation(moved, *(classes(draw, 4) for _ in range(2)), context=Context(oracles=tuple(oracles)))
    assert METRICS["relative_mmd"](wrong) > 10


def test_the_p_value_keeps_its_level_and_has_power() -> None:
    draw = np.random.default_rng(3)
    p_values = {
        shift: np.array(
            [
                METRICS["mmd_p"](with_oracles(model(draw, 20, shift), [model(draw, 20) for _ in range(19)]))
                for _ in range(150)
            ]
        )
        for shift in (0.0, 1.5)
    }
    assert (p_values[0.0] <= 0.05).mean() < 0.11  # 5 % give or take three standard errors
    assert p_values[0.0].mean() == pytest.approx(0.525, abs=0.08)
    assert (p_values[1.5] <= 0.05).mean() > 0.9


def test_too_few_oracles_give_no_number() -> None:
    draw = np.random.default_rng(4)
    few = with_oracles(model(draw), [model(draw)])
    with pytest.raises(rm.InputError, match="at least 2 oracles; got 1"):
        METRICS["relative_mmd"](few)
    with pytest.raises(
        rm.InputError, match=r"at least 19 oracles; got 1. With so few it is never below 0.50"
    ):
        METRICS["mmd_p"](few)


def harmed(change: Floats, *, people: dict[int | str, str] | None = None) -> Evaluation:
    """Six retained examples of classes 0, 0, 1, 1, 2, 2 whose losses have changed by so much."""
    train, test = digits()
    split = Split(train.take(train.ids[:8]), test, rm.ForgetSet("f", train.ids[6:8]))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])

    def losses(values: Floats) -> Outputs:
        wanted = torch.from_numpy(np.exp(-values))
        logits = torch.full((6, 3), 0.0, dtype=torch.float64)
        logits[torch.arange(6), labels] = wanted.log() - ((1 - wanted) / 2).log()
        return Outputs(logits, labels)

    start = np.linspace(0.5, 1, 6)
    small = classes(np.random.default_rng(0), 2)
    before = Evaluation(small, losses(start), small)
    return Evaluation(
        small, losses(start + change), small, split=split, context=Context(before=before, people=people)
    )


def test_harm_by_hand() -> None:
    change = np.array([0.1, 0.3, -0.2, 0.0, 0.05, 0.05])
    found = harmed(change)
    assert METRICS["harm"](found) == pytest.approx(change.mean())
    assert METRICS["harm_worst_class"](found) == pytest.approx(0.2)
    assert found.split is not None
    ids = found.split.retain.ids.tolist()
    people = {ids[0]: "ann", ids[2]: "ann", ids[1]: "bob", ids[3]: "cleo"}
    assert METRICS["harm_worst_person"](harmed(change, people=people)) == pytest.approx(0.3)


def test_harm_says_what_it_misses() -> None:
    draw = np.random.default_rng(0)
    with pytest.raises(rm.InputError, match="before unlearning"):
        METRICS["harm"](model(draw))
    with pytest.raises(rm.InputError, match="pass `people`"):
        METRICS["harm_worst_person"](harmed(np.zeros(6)))
    with pytest.raises(rm.InputError, match="none of them has one"):
        METRICS["harm_worst_person"](harmed(np.zeros(6), people={-1: "ann"}))
