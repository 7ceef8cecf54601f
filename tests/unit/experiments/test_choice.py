"""Which configuration is chosen: the fastest of the best when tuning, the gentlest of the best in studies."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import remanence as rm
from remanence.errors import NumericalError
from remanence.experiments import Trajectory, Tried, TunedChoice, read_choice
from remanence.experiments.choice import (
    enough,
    fastest_of_the_best,
    gentlest_of_the_best,
    tried,
    write_choice,
)
from remanence.types import Measurement


def trajectory(*values: float, metric: str = "mia", start: float = 0.0) -> Trajectory:
    """Measured at steps 0, 1, 2, ...; the first is before unlearning."""
    return Trajectory(
        [Measurement(metric, "f", value, step, 0) for step, value in enumerate((start, *values))]
    )


def configuration(number: int, *balance: float) -> Tried:
    return Tried(number, {}, tuple(range(1, len(balance) + 1)), balance)


def with_rate(rate: float, *distances: float) -> Tried:
    """One run per seed, each at this distance below its oracle, whose level is 0.5."""
    runs = [(trajectory(0.5 - distance), {"mia": 0.5}) for distance in distances]
    return tried(0, {"learning_rate": rate}, runs)


def rate_of(*configurations: Tried) -> float:
    return gentlest_of_the_best(configurations).options["learning_rate"]


def test_balance_counts_both_sides_and_all_metrics() -> None:
    rows = [Measurement("mia", "f", value, step, 0) for step, value in ((0, 0.1), (5, 0.6), (9, 0.5))] + [
        Measurement("test", "f", value, step, 0) for step, value in ((0, 0.9), (5, 0.7), (9, 0.9))
    ]
    result = tried(4, {"learning_rate": 0.1}, [(Trajectory(rows), {"mia": 0.5, "test": 0.9})])
    assert (result.number, result.options, result.diverged) == (4, {"learning_rate": 0.1}, False)
    assert result.steps == (5, 9), "before unlearning all configurations are the same"
    assert result.balance == pytest.approx((0.85, 1.0))
    assert result.distances == pytest.approx((0.075,))


def test_balance_is_averaged_over_seeds_each_with_its_own_goal() -> None:
    runs = [(trajectory(0.4, 0.5), {"mia": 0.5}), (trajectory(0.8, 0.7), {"mia": 0.9})]
    result = tried(0, {}, runs)
    assert result.balance == pytest.approx((0.9, 0.9))
    assert result.distances == pytest.approx((0.05, 0.15))
    assert result.distance == pytest.approx(0.1)


def test_the_fastest_of_those_within_five_percent_wins() -> None:
    slow_best = configuration(0, 0.5, 0.6, 0.7, 1.0, 1.0)
    fast_good = configuration(1, 0.5, 0.96, 0.96, 0.96, 0.96)
    faster_worse = configuration(2, 0.94, 0.94, 0.94, 0.94, 0.94)
    flash = configuration(3, 1.0, 0.5, 0.5, 0.5, 0.5)  # one good evaluation is not staying there
    chosen, steps = fastest_of_the_best([slow_best, fast_good, faster_worse, flash], untouched=0.4)
    assert (chosen.number, steps) == (1, 2)
    assert flash.best == 0.5


def test_where_the_model_was_near_before_only_the_best_counts() -> None:
    still, better = configuration(0, 0.97, 0.97, 0.97), configuration(1, 0.9, 0.99, 0.99)
    assert enough([still, better], untouched=0.97) == 0.99
    chosen, steps = fastest_of_the_best([still, better], untouched=0.97)
    assert (chosen.number, steps) == (1, 2)


def test_all_diverged_is_one_sentence() -> None:
    lost = Tried(0, {"learning_rate": 1.0}, diverged=True)
    assert (lost.best, lost.steps_to(0.1), lost.distance) == (0.0, None, float("inf"))
    with pytest.raises(NumericalError, match="Every configuration diverged"):
        fastest_of_the_best([lost], untouched=0.5)
    with pytest.raises(NumericalError, match=r"Every learning rate of \[1.0\] diverged"):
        gentlest_of_the_best([lost])


def test_the_learning_rate_nearest_the_oracle_wins_from_either_side() -> None:
    curves = {0.1: (0.4, 0.5), 0.01: (0.1, 0.2), 1.0: (1.0, 1.0)}
    results = [
        tried(i, {"learning_rate": rate}, [(trajectory(*values), {"mia": 0.5})])
        for i, (rate, values) in enumerate(curves.items())
    ]
    assert rate_of(*results) == 0.1
    assert [result.distance for result in results] == pytest.approx([0.05, 0.35, 0.5])


def test_of_learning_rates_that_do_equally_well_the_gentlest_wins() -> None:
    assert rate_of(with_rate(0.1, 0.104), with_rate(0.2, 0.1)) == 0.1
    assert rate_of(with_rate(0.1, 0.11), with_rate(0.2, 0.1)) == 0.2


@pytest.mark.parametrize(
    ("small", "large", "choice"),
    [
        # 20 % worse, but not in every seed
        ([0.050, 0.020, 0.045, 0.035], [0.030, 0.035, 0.030, 0.030], 0.1),
        ([0.050, 0.047, 0.052, 0.050], [0.040, 0.038, 0.041, 0.040], 0.2),  # worse in every seed alike
        ([0.041, 0.039, 0.042, 0.041], [0.040, 0.038, 0.041, 0.040], 0.1),  # alike in every seed, within 5 %
        ([0.050], [0.040], 0.2),  # a single seed says nothing about chance
    ],
)
def test_a_rate_that_is_worse_by_chance_only_counts_as_equal(
    small: Sequence[float], large: Sequence[float], choice: float
) -> None:
    assert rate_of(with_rate(0.1, *small), with_rate(0.2, *large)) == choice
    assert rate_of(with_rate(0.2, *large), with_rate(0.1, *small)) == choice, "whatever the order"


def test_a_configuration_that_diverged_with_one_seed_counts_as_diverged() -> None:
    """The seeds on which it survived say nothing about the one on which it did not."""
    good = trajectory(0.5, 0.5)
    lost = Trajectory(trajectory(0.5).rows, NumericalError("The loss became nan at step 1."))
    result = tried(0, {"learning_rate": 0.1}, [(good, {"mia": 0.5}), (lost, {"mia": 0.5})])
    assert (result.diverged, result.best, result.distances) == (True, 0.0, ())
    assert rate_of(result, with_rate(0.2, 0.3, 0.3)) == 0.2


def test_a_choice_is_read_back_and_nothing_else_is(tmp_path: Path) -> None:
    choice = TunedChoice("finetune", {"learning_rate": 0.1}, 0.98, 12, 0.9, 25, "ab", "random", 0)
    write_choice(tmp_path / "choice.json", choice)
    assert read_choice(tmp_path / "choice.json") == choice
    (tmp_path / "other.json").write_text('{"remanence": "forget set"}')
    for name, sentence in (("other.json", "not a choice"), ("none.json", "not a file")):
        with pytest.raises(rm.InputError, match=sentence):
            read_choice(tmp_path / name)
    newer = (tmp_path / "choice.json").read_text().replace('"format": 1', '"format": 99')
    (tmp_path / "choice.json").write_text(newer)
    with pytest.raises(rm.InputError, match="in format 99"):
        read_choice(tmp_path / "choice.json")
