"""Verdicts follow from numbers."""

import numpy as np
import pytest

from remanence.study.durations import Timed, rising, spearman, spread
from remanence.study.figures.group_loss import _blind, _sees
from remanence.study.figures.hardest import _verdict
from remanence.study.figures.proxies import _all_correlate, _mean_is_best
from remanence.trials import Duration


def runs(times: list[list[float]], score: str = "privacy_loss", reached: bool = True) -> list[Timed]:
    """times[seed][band], harder bands later."""
    return [
        Timed(
            {"seed": seed, "set": str(band), "size": 10, "score": score},
            "ua",
            10.0**band,
            Duration(value, reached),
            9.0,
        )
        for seed, each in enumerate(times)
        for band, value in enumerate(each)
    ]


@pytest.mark.parametrize(
    ("times", "agreement"),
    [
        ([[0, 1, 2, 3, 4], [0, 2, 1, 3, 5]], "agrees"),
        ([[4, 3, 2, 1, 0], [5, 3, 1, 2, 0]], "disagrees"),
        ([[0, 1, 2, 3, 4], [1, 0, 0, 0, 1]], "undecided"),
        ([[2, 2, 2, 2, 2], [2, 2, 2, 2, 2]], "undecided"),
        ([[0, 3, 3, 3, 1], [0, 3, 3, 3, 1]], "undecided"),
    ],
)
def test_rising_times(times: list[list[float]], agreement: str) -> None:
    assert rising(runs(times), "harder takes longer").agreement == agreement


def test_what_was_not_reached_is_told() -> None:
    assert "5 of 5 runs had not got there" in rising(runs([[1, 2, 3, 4, 5]], reached=False), "c").saw


def test_spearman() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(50).tolist(), rng.random(50).tolist()
    from scipy.stats import spearmanr

    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spread([1.0, 3.0]) == "2.00 ± 1.41"


@pytest.mark.parametrize(
    ("ours", "theirs", "agreement"),
    [(3.0, 1.0, "agrees"), (1.0, 3.0, "disagrees"), (2.0, 2.0, "undecided")],
)
def test_hardest(ours: float, theirs: float, agreement: str) -> None:
    both = runs([[ours]] * 3) + runs([[theirs]] * 3, score="error_norm")
    assert _verdict(both, "ua", 10, ["privacy_loss", "error_norm"]).agreement == agreement


def test_proxies() -> None:
    good = {"gradient_norm_mean": [0.9, 0.8], "error_norm": [0.6, 0.7]}
    assert (_all_correlate(good).agreement, _mean_is_best(good).agreement) == ("agrees", "agrees")
    other = {"gradient_norm_mean": [0.6, 0.6], "error_norm": [0.7, 0.7], "confidence": [-0.1, -0.1]}
    assert (_all_correlate(other).agreement, _mean_is_best(other).agreement) == ("disagrees", "disagrees")
    mixed = {"gradient_norm_mean": [0.6, 0.8], "error_norm": [0.9, 0.7], "confidence": [0.3, 0.3]}
    assert (_all_correlate(mixed).agreement, _mean_is_best(mixed).agreement) == ("undecided", "undecided")


def test_group_loss() -> None:
    losses = [1.0, 2.0, 3.0, 4.0, 5.0]
    flat, steep = [[10.0, 11.0]] * 5, [[10.0**i] * 2 for i in range(5)]
    assert _blind(flat, losses).agreement == "agrees"
    assert _blind(steep, losses).agreement == "disagrees"
    assert _sees(steep, losses).agreement == "agrees"
    assert _sees(steep[::-1], losses).agreement == "disagrees"
