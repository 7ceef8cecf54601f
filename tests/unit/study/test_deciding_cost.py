"""How many seeds would decide: against simulation, and in words."""

import numpy as np
import pytest

from remanence.study.deciding_cost import deciding_cost, samples_to_decide
from remanence.study.significance import LEVEL, sign_flip


@pytest.mark.parametrize("effect", [0.5, 0.8])
def test_so_many_seeds_decide_as_often_as_said(effect: float) -> None:
    """The number for the p-value that a typical experiment of eight seeds gives, in 300 experiments of that size."""
    draw = np.random.default_rng(0)
    typical = float(np.median([sign_flip(draw.normal(effect, 1, 8)) for _ in range(300)]))
    needed = samples_to_decide(typical, typical, 8)
    assert needed is not None
    decided = np.mean([sign_flip(draw.normal(effect, 1, needed)) < LEVEL for _ in range(300)])
    assert 0.65 <= decided <= 0.95


def test_a_correction_asks_for_more_and_a_larger_effect_for_fewer() -> None:
    alone, among_three = samples_to_decide(0.08, 0.08, 8), samples_to_decide(0.08, 0.24, 8)
    clearer = samples_to_decide(0.06, 0.06, 8)
    assert alone is not None
    assert among_three is not None
    assert clearer is not None
    assert clearer < alone < among_three


@pytest.mark.parametrize("p", [0.5, 0.9, 1.0, 0.49])
def test_no_effect_is_no_plan(p: float) -> None:
    assert samples_to_decide(p, p, 8) is None


def verdict(p: float, against: float, agreement: str = "undecided", effect: float = 0.5) -> dict[str, object]:
    test = {"p": p, "p_holm": p, "p_against": against, "p_against_holm": against, "samples": 8}
    test |= {"effect": effect, "interval": [effect, effect]}
    return {"agreement": agreement, "test": test}


def test_the_sentence_says_direction_seeds_and_hours() -> None:
    study = {"core_seconds": 3600.0}
    needed = samples_to_decide(0.1, 0.1, 8)
    sentence = deciding_cost(study, verdict(0.9, 0.1))
    assert f"(against the claim), {needed} seeds or pairs instead of 8" in sentence
    assert f"about {needed / 8:.1f} hours of one core" in sentence
    assert deciding_cost(study, verdict(0.5, 0.6)).startswith("The effect is too small")
    assert "more seeds would not decide" in deciding_cost(study, verdict(1.0, 1.0, effect=0.0))
    assert deciding_cost(study, verdict(0.01, 1.0, "agrees")) == ""
    assert deciding_cost(study, {"agreement": "undecided", "test": None}) == ""
