"""Verdicts follow from numbers."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from remanence.experiments import Duration
from remanence.report.study_figures import barriers_figure, lines_figure, proxies_figure
from remanence.study.correlations import kendall, spearman
from remanence.study.figures import barriers, curves, rankings
from remanence.study.figures.group_loss import _blind, _cell, _sees
from remanence.study.figures.hardest import _verdict
from remanence.study.figures.proxies import _all_correlate, _mean_is_best
from remanence.study.figures.sizes import _fades
from remanence.study.paired_times import Gap, gap, gap_score, spread, spread_of_times
from remanence.study.results import Verdict, verdict_documents
from remanence.study.significance import all_hold, fewest_samples, holm, paired_test, rank_test, sign_flip
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
        ([[0, 3, 3, 3, 1], [1, 3, 3, 3, 0]], "undecided"),
    ],
)
def test_rising_times(times: list[list[float]], agreement: str) -> None:
    assert rising(runs(times * 3), "harder takes longer").agreement == agreement
    few = rising(runs(times[:1] * 3), "harder takes longer")
    assert few.agreement == "undecided", "three seeds can never decide"
    assert few.test is not None
    assert "no p-value below 0.125" in few.test.why_undecided
    assert "at least 5 are needed" in few.test.why_undecided


def test_the_size_of_the_effect_is_told() -> None:
    test = rising(runs([[0, 1, 2, 3, 4], [0, 2, 1, 3, 5]] * 3), "c").test
    assert test is not None
    assert test.effect == pytest.approx(0.9), "Kendall's tau: 1 and 0.8"
    assert test.interval is not None
    assert test.interval[0] < 0.9 < test.interval[1]
    assert (test.p, test.p_against) == (2**-6, 1.0)


def test_what_was_not_reached_is_told() -> None:
    assert "5 of 5 runs did not reach the target" in rising(runs([[1, 2, 3, 4, 5]], reached=False), "c").saw


@pytest.mark.parametrize(
    ("times", "agreement"),
    [
        ([[-9, -9]] * 6, "undecided"),  # neither reached the target: no gap of 0
        ([[2, -1]] * 6, "undecided"),  # the hardest diverged at once: not the shortest
        ([[1, 2, 3, -9, -9]] * 6, "agrees"),  # the shorter reached the target, so the other is longer
        ([[1, 2, 3, 4, 5], *[[-9] * 5] * 5], "undecided"),  # the order is known with one of six seeds
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [-9] * 5] * 3, "agrees"),
        ([[-9, 4, 3, 2, 1]] * 6, "disagrees"),
        ([[-9] * 5] * 6, "undecided"),
        ([[1, 5], [2, 6]] * 3, "agrees"),  # two bands are enough
        ([[1, -1, 4], [1, -1, 4]] * 3, "agrees"),  # two of three are known
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
    assert [gap_score(value) for value in (None, Gap(0.0), Gap(2.0, open=True))] == [0.0, 0.0, 2.0]
    assert spread_of_times([there, cut]) == "≥ 6.00 ± 4.24"
    assert spread([2.0]) == "2.00", "one seed has no spread"
    assert spread([]) == "unknown"


def test_separation_is_not_judged_from_the_cap() -> None:
    def fades(middle: list[list[float]], largest: list[list[float]]) -> str:
        return _fades(runs(middle, size=10) + runs(largest, size=20)).agreement

    assert fades([[1, -9]] * 6, [[4, -9]] * 6) == "undecided"
    assert fades([[1, 6], [1, 7]] * 3, [[4, 5], [4, 6]] * 3) == "agrees"
    assert fades([[4, 5], [4, 6]] * 3, [[1, 6], [1, 7]] * 3) == "disagrees"
    assert fades([[1, 6], [1, 7]] * 3, [[1, 5.95], [1, 7.05]] * 3) == "undecided", "once wider, once narrower"
    assert fades([[1, 6]], [[1, 2]]) == "undecided", "one seed cannot decide"


def test_spearman() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(50).tolist(), rng.random(50).tolist()
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]) == 0.9, "which `at least 0.9` must take"
    assert kendall([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall([1, 2, 3], [5, 5, 5]) == 0
    assert spread([1.0, 3.0]) == "2.00 ± 1.41"


@pytest.mark.parametrize(
    ("ours", "theirs", "agreement"),
    [(3.0, 1.0, "agrees"), (1.0, 3.0, "disagrees"), (2.0, 2.0, "undecided")],
)
def test_hardest(ours: float, theirs: float, agreement: str) -> None:
    both = runs([[ours]] * 5) + runs([[theirs]] * 5, score="error_norm")
    assert _verdict(both, "ua", 10, ["privacy_loss", "error_norm"]).agreement == agreement


@pytest.mark.parametrize(
    ("ours", "theirs", "agreement"),
    [
        ([-9] * 5, [3] * 5, "agrees"),
        ([-9] * 5, [-9] * 5, "undecided"),
        ([-1] * 5, [3] * 5, "undecided"),  # diverged at once: not shorter
        ([3] * 5, [-9] * 5, "disagrees"),
        ([4, 4, 4, 4, 3], [3, 3, 3, 3, -9], "undecided"),  # longer with most, but much shorter with one
    ],
)
def test_hardest_with_times_cut_off(ours: list[float], theirs: list[float], agreement: str) -> None:
    both = runs([[each] for each in ours]) + runs([[each] for each in theirs], score="error_norm")
    verdict = _verdict(both, "ua", 10, ["privacy_loss", "error_norm"])
    assert verdict.agreement == agreement
    assert ("≥" in verdict.saw) is (min(*ours, *theirs) < 0)


def test_a_correlation_that_is_undefined_decides_nothing() -> None:
    found: dict[str, list[float | None]] = {
        "gradient_norm_mean": [0.9, 0.8] * 3,
        "error_norm": [None, None] * 3,
        "confidence": [0.7, 0.6] * 3,
    }
    assert (_all_correlate(found).agreement, _mean_is_best(found).agreement) == ("undecided", "agrees")
    assert "undefined for error norm" in _all_correlate(found).saw
    assert _mean_is_best({"gradient_norm_mean": [None], "error_norm": [0.9]}).agreement == "undecided"
    some: dict[str, list[float | None]] = {"1 and 2": [0.9, None] * 3, "2 and 3": [0.9, 0.9] * 3}
    assert rankings._verdict(some).agreement == "undecided"
    assert rankings._verdict({"1 and 2": [0.9, 0.8] * 3}).agreement == "agrees"
    assert rankings._verdict({"1 and 2": [0.9, 0.8] * 3, "2 and 3": [0.4, 0.5] * 3}).agreement == "disagrees"
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
    base = [[0.2] * 66, [0.4] * 66]  # twelve oracles: six pairs
    alike = [[0.21, 0.2] * 6, [0.4, 0.39] * 6]
    assert barrier_verdicts([[1.0, 1.1] * 6, [2.0, 2.1] * 6], alike, base) == ["agrees"] * 3
    large = [[3.1, 3.2] * 6] * 2
    assert barrier_verdicts([[2.0, 2.1] * 6, [1.0, 1.1] * 6], large, base) == ["disagrees"] * 3
    nothing = barrier_verdicts([[1.0], [1.0]], [[0.1]] * 2, [[], []])
    assert nothing == ["undecided"] * 3, "one oracle, one seed, equal barriers"
    noisy = barrier_verdicts([[1.0, 2.0] * 6] * 2, [[1.5, 1.4] * 6] * 2, base)
    assert noisy[1] == "undecided", "lower by 0.05 on average, which seeds differ by more than"


def test_after_is_not_alike_where_before_is_too() -> None:
    """Numbers that do not even tell the model before unlearning from an oracle cannot show that it was unlearned."""
    base = [[0.2] * 66, [0.4] * 66]
    alike = [[0.21, 0.2] * 6, [0.4, 0.39] * 6]
    assert barrier_verdicts(alike, alike, base)[0] == "undecided"
    before = [[1.0, 1.1] * 6, [2.0, 2.1] * 6]
    assert barrier_verdicts(before, before, base)[0] == "disagrees", (
        "the model before unlearning is not unlearned"
    )


def test_proxies() -> None:
    good = {"gradient_norm_mean": [0.9, 0.8] * 3, "error_norm": [0.6, 0.7] * 3}
    assert (_all_correlate(good).agreement, _mean_is_best(good).agreement) == ("agrees", "agrees")
    other = {"gradient_norm_mean": [0.6] * 7, "error_norm": [0.7] * 7, "confidence": [-0.1] * 7}
    assert (_all_correlate(other).agreement, _mean_is_best(other).agreement) == ("disagrees", "disagrees")
    mixed = {"gradient_norm_mean": [0.6, 0.8] * 3, "error_norm": [0.9, 0.7] * 3, "confidence": [0.7, 0.4] * 3}
    assert (_all_correlate(mixed).agreement, _mean_is_best(mixed).agreement) == ("undecided", "undecided")


def test_group_loss() -> None:
    losses, none = [1.0, 2.0, 3.0, 4.0, 5.0], [0] * 5
    flat, steep = [[10.0, 11.0] * 10] * 5, [[10.0**i] * 20 for i in range(5)]
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


def test_ends_that_differ_by_less_than_the_tolerance_are_the_same() -> None:
    def ends(hardest: list[float], easiest: list[float]) -> str:
        return curves._alike_ends("ra", [easiest, [0.5] * len(easiest), hardest], 0.05).agreement

    assert ends([0.91, 0.92] * 3, [0.90, 0.93] * 3) == "agrees"
    assert ends([0.81, 0.82] * 3, [0.90, 0.93] * 3) == "disagrees"
    assert ends([0.95, 0.88] * 3, [0.90, 0.94] * 3) == "undecided"
    assert ends([0.91, 0.92], [0.90, 0.93]) == "undecided"


def test_sign_flips_are_counted_exactly() -> None:
    assert sign_flip([1.0, 2.0, 3.0]) == 1 / 8
    assert sign_flip([1.0, 2.0, -3.0]) == 5 / 8, "of eight sums those of at least 0"
    assert sign_flip([0.0, 0.0]) == 1.0, "ties decide nothing"
    assert sign_flip([0.0, 5.0]) == 1 / 2
    assert sign_flip([]) == 1.0
    assert sign_flip([1.0] * 40) == pytest.approx(1 / (1 << 14)), "sampled, the observed signs among them"
    assert fewest_samples() == 5
    wilcoxon = [0.3, -0.1, 0.7, 0.9, -0.2, 1.1, 0.4]
    every = np.array(np.meshgrid(*[(v, -v) for v in wilcoxon])).reshape(7, -1).sum(axis=0)
    assert sign_flip(wilcoxon) == pytest.approx(np.mean(every >= sum(wilcoxon) - 1e-12))


def test_ranks_are_permuted_exactly() -> None:
    test = rank_test(1.0, [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    assert (test.p, test.p_against, test.least) == (1 / 24, 1.0, 1 / 24)
    assert rank_test(None, [1, 2, 3, 4], [5.0] * 4).p == 1.0
    assert rank_test(0.1, range(9), [float(i) for i in range(9)]).p < 0.001


def test_holm_corrects_for_all_claims_of_a_study() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    verdicts = [
        Verdict("a", "", "r", paired_test([1.0] * 5, "u")),
        Verdict("b", "", "r"),
        Verdict("c", "", "r", paired_test([1.0] * 6, "u")),
    ]
    documents = verdict_documents(verdicts)
    assert [document["agreement"] for document in documents] == ["agrees", "undecided", "agrees"]
    assert documents[0]["test"]["p_holm"] == 1 / 32
    assert documents[2]["test"]["p_holm"] == 2 / 64
    assert documents[1]["test"] is None


def test_a_study_decides_by_the_corrected_p_values() -> None:
    clear, weaker = paired_test([1.0] * 8, "u"), paired_test([1.0] * 5 + [-0.5, 0.0, 0.0], "u")
    assert weaker.agreement == "agrees"
    words = [
        entry["agreement"]
        for entry in verdict_documents(
            [Verdict("c", "s", "r", test) for test in (clear, weaker, weaker, weaker)]
        )
    ]
    assert words == ["agrees", "undecided", "undecided", "undecided"]
    against = paired_test([-1.0] * 8, "u")
    assert [entry["agreement"] for entry in verdict_documents([Verdict("c", "s", "r", against)])] == [
        "disagrees"
    ]


def test_a_withheld_verdict_says_why() -> None:
    verdict = Verdict("c", "s", "r", paired_test([1.0] * 8, "u"), withheld="The base failed.")
    assert verdict.agreement == "undecided"
    (document,) = verdict_documents([verdict])
    assert (document["agreement"], document["why_undecided"]) == ("undecided", "The base failed.")
    assert document["test"]["p"] == 2**-8


def test_the_effect_of_several_claims_is_that_of_the_weakest() -> None:
    strong, weak = (paired_test([effect] * 6, "u") for effect in (3.0, 1.0))
    assert all_hold([strong, weak]).effect == all_hold([weak, strong]).effect == 1.0
