"""Verdicts follow from numbers."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from remanence.experiments import Duration
from remanence.report.study_figures import barriers_figure, lines_figure, proxies_figure
from remanence.study.correlations import correlates, spearman
from remanence.study.figures import barriers, rankings
from remanence.study.figures.group_loss import _blind, _cell, _sees
from remanence.study.figures.hardest import _verdict
from remanence.study.figures.proxies import _all_correlate, _mean_is_best
from remanence.study.figures.sizes import _fades
from remanence.study.paired_times import Gap, gap, longer_on_average, spread, spread_of_times
from remanence.study.unlearning_times import Timed, rank_agreement, rising

CAP = 9.0


def runs(
    times: list[list[float]], score: str = "privacy_loss", reached: bool = True, size: int = 10
) -> list[Timed]:
    """times[seed][band], harder bands later; a negative time is one at which a run was given up."""
    return [
        Timed(
            {"seed": seed, "set": str(band), "size": size, "score": score},
            "ua",
            10.0**band,
            Duration(abs(value), reached and value >= 0),
            CAP,
        )
        for seed, bands in enumerate(times)
        for band, value in enumerate(bands)
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
    assert "5 of 5 runs did not reach the target" in rising(runs([[1, 2, 3, 4, 5]], reached=False), "c").saw


@pytest.mark.parametrize(
    ("times", "agreement"),
    [
        ([[-9, 1, 2, 3, -9]] * 2, "undecided"),  # neither end got there: no gap of 0
        ([[2, 2, 3, 4, -1]] * 2, "undecided"),  # the hardest diverged at once: not the shortest
        ([[1, 2, 3, -9, -9]] * 2, "agrees"),  # the shorter got there, so the other is longer
        ([[1, 2, 3, 4, 5], [-9] * 5, [-9] * 5], "undecided"),  # one of three seeds tells
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [-9] * 5], "agrees"),
        ([[-9, 4, 3, 2, 1]] * 2, "disagrees"),
        ([[-9] * 5] * 2, "undecided"),
        ([[1, 5], [2, 6]], "agrees"),  # two bands are enough
        ([[1, -1, 4], [1, -1, 4]], "agrees"),  # two of three are known
        ([[2, -1, -1, -1, 5]] * 2, "undecided"),  # two of five are not enough
    ],
)
def test_times_that_were_cut_off_are_no_times(times: list[list[float]], agreement: str) -> None:
    assert rising(runs(times), "harder takes longer").agreement == agreement


def agreement(*times: float) -> float | None:
    """Of one seed; a negative time is one at which the run was given up."""
    return rank_agreement(runs([list(times)]))


def test_rank_agreement_is_spearman_with_ties() -> None:
    times = [0.0, 0.0, 0.0, 6.0, 15.0]
    assert agreement(*times) == pytest.approx(spearmanr(range(5), times).statistic)
    assert agreement(1, 1, 1, 1, 1) is None


def test_a_run_that_did_not_reach_the_target_is_slower_than_those_that_did() -> None:
    assert agreement(29.0, -30.0) == pytest.approx(1.0)
    assert agreement(5.0, -30.0, -30.0) == pytest.approx(np.sqrt(3) / 2)
    assert agreement(-30.0, -30.0, -30.0) is None
    assert agreement(30.0, -30.0) is None, "the second may have been close by then"
    assert agreement(1.0, 3.0, -2.0) == pytest.approx(1.0), "one that diverged early is left out"


def test_which_of_two_times_is_longer() -> None:
    there, cut = Duration(3.0, True), Duration(9.0, False)
    assert gap(there, Duration(1.0, True)) == Gap(2.0)
    assert gap(cut, there) == Gap(6.0, open=True)
    assert gap(there, cut) == Gap(-6.0, open=True)
    assert gap(cut, cut) is None
    assert gap(there, Duration(1.0, False)) is None
    assert longer_on_average([]) is None
    assert longer_on_average([Gap(1.0), Gap(-2.0)]) is False
    assert longer_on_average([Gap(1.0, open=True), Gap(-2.0)]) is None, "it may be more than 2"
    assert longer_on_average([Gap(3.0, open=True), Gap(-2.0)]) is True
    assert spread_of_times([there, cut]) == "≥ 6.00 ± 4.24"
    assert spread([2.0]) == "2.00", "one seed has no spread"
    assert spread([]) == "unknown"


def test_separation_is_not_judged_from_the_cap() -> None:
    def fades(middle: list[list[float]], largest: list[list[float]]) -> str:
        return _fades(runs(middle, size=10) + runs(largest, size=20)).agreement

    assert fades([[1, -9], [1, -9]], [[4, -9], [4, -9]]) == "undecided"
    assert fades([[1, 6], [1, 7]], [[4, 5], [4, 6]]) == "agrees"
    assert fades([[4, 5], [4, 6]], [[1, 6], [1, 7]]) == "disagrees"
    assert fades([[1, 6], [1, 7]], [[1, 5.95], [1, 5.85]]) == "undecided", "within 0.71, not within 0.5"
    assert fades([[1, 6]], [[1, 2]]) == "undecided", "one seed has no spread"


def test_spearman() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(50).tolist(), rng.random(50).tolist()
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]) == 0.9, "which `at least 0.9` must take"
    assert [correlates(each, 0.5) for each in (None, 0.6, 0.2, 0.0)] == [
        "undecided",
        "agrees",
        "undecided",
        "disagrees",
    ]
    assert spread([1.0, 3.0]) == "2.00 ± 1.41"


@pytest.mark.parametrize(
    ("ours", "theirs", "agreement"),
    [(3.0, 1.0, "agrees"), (1.0, 3.0, "disagrees"), (2.0, 2.0, "undecided")],
)
def test_hardest(ours: float, theirs: float, agreement: str) -> None:
    both = runs([[ours]] * 3) + runs([[theirs]] * 3, score="error_norm")
    assert _verdict(both, "ua", 10, ["privacy_loss", "error_norm"]).agreement == agreement


@pytest.mark.parametrize(
    ("ours", "theirs", "agreement"),
    [
        ([-9, -9, -9], [3, 3, 3], "agrees"),
        ([-9, -9, -9], [-9, -9, -9], "undecided"),
        ([-1, -1, -1], [3, 3, 3], "undecided"),  # diverged at once: not shorter
        ([3, 3, 3], [-9, -9, -9], "disagrees"),
        ([4, 4, 3], [3, 3, -9], "undecided"),  # longer with most, but by how much shorter is not known
    ],
)
def test_hardest_with_times_cut_off(ours: list[float], theirs: list[float], agreement: str) -> None:
    both = runs([[each] for each in ours]) + runs([[each] for each in theirs], score="error_norm")
    verdict = _verdict(both, "ua", 10, ["privacy_loss", "error_norm"])
    assert verdict.agreement == agreement
    assert ("≥" in verdict.saw) is (min(*ours, *theirs) < 0)


def test_a_correlation_that_is_undefined_decides_nothing() -> None:
    found = {"gradient_norm_mean": [0.9, 0.8], "error_norm": [None, None]}
    assert (_all_correlate(found).agreement, _mean_is_best(found).agreement) == ("undecided", "agrees")
    assert "undefined for error norm" in _all_correlate(found).saw
    assert _mean_is_best({"gradient_norm_mean": [None], "error_norm": [0.9]}).agreement == "undecided"
    assert rankings._verdict({"1 and 2": [0.9, None], "2 and 3": [0.9, 0.9]}).agreement == "undecided"
    assert rankings._verdict({"1 and 2": [0.9, 0.8]}).agreement == "agrees"
    lines_figure({"raw": {"1 and 2": [], "2 and 3": [0.9]}}, "Spearman")
    proxies_figure(
        np.arange(1.0, 9.0), {"confidence": np.ones(8), "error_norm": np.arange(8.0)}, {"error_norm": 1.0}
    )


def barrier_verdicts(
    before: list[list[float]], after: list[list[float]], base: list[list[float]]
) -> list[str]:
    found = {"before": before, "after": after, "baseline": base}
    losses = [float(i + 1) for i in range(len(before))]
    barriers_figure(losses, {"test": found})
    return [each.agreement for each in barriers._verdicts("test", found, losses)]


def test_barriers() -> None:
    base = [[0.1, 0.2], [0.1, 0.3]]
    assert barrier_verdicts([[1.0, 1.1], [2.0, 2.1]], [[0.1, 0.2]] * 2, base) == ["agrees"] * 3
    assert barrier_verdicts([[2.0, 2.1], [1.0, 1.1]], [[3.1, 3.2]] * 2, base) == ["disagrees"] * 3
    nothing = barrier_verdicts([[1.0], [1.0]], [[0.1]] * 2, [[], []])
    assert nothing == ["undecided"] * 3, "one oracle, one seed, equal barriers"
    noisy = barrier_verdicts([[1.0, 2.0], [1.0, 2.0]], [[1.5, 1.4], [1.5, 1.4]], base)
    assert noisy[1] == "undecided", "lower by 0.05 on average, which seeds differ by more than"


def test_proxies() -> None:
    good = {"gradient_norm_mean": [0.9, 0.8], "error_norm": [0.6, 0.7]}
    assert (_all_correlate(good).agreement, _mean_is_best(good).agreement) == ("agrees", "agrees")
    other = {"gradient_norm_mean": [0.6, 0.6], "error_norm": [0.7, 0.7], "confidence": [-0.1, -0.1]}
    assert (_all_correlate(other).agreement, _mean_is_best(other).agreement) == ("disagrees", "disagrees")
    mixed = {"gradient_norm_mean": [0.6, 0.8], "error_norm": [0.9, 0.7], "confidence": [0.3, 0.3]}
    assert (_all_correlate(mixed).agreement, _mean_is_best(mixed).agreement) == ("undecided", "undecided")


def test_group_loss() -> None:
    losses, none = [1.0, 2.0, 3.0, 4.0, 5.0], [0] * 5
    flat, steep = [[10.0, 11.0]] * 5, [[10.0**i] * 2 for i in range(5)]
    assert _blind(flat, none, losses).agreement == "agrees"
    assert _blind(steep, none, losses).agreement == "disagrees"
    assert _sees(steep, none, losses).agreement == "agrees"
    assert _sees(steep[::-1], none, losses).agreement == "disagrees"
    assert _sees([[1.0, 1.0]] * 5, none, losses).agreement == "undecided"


def test_infinite_group_losses_are_counted_and_decide_nothing() -> None:
    losses, few = [1.0, 2.0], [[1.0], [100.0] * 20]
    for verdict in (_blind(few, [19, 0], losses), _sees(few, [19, 0], losses)):
        assert (verdict.agreement, verdict.saw) == ("undecided", "19 of 40 estimates are infinite")
    assert _blind([[], []], [20, 20], losses).agreement == "undecided"
    assert _cell([], 20) == "infinite"
    assert "19 of 20 infinite" in _cell([1.0], 19)
