"""Which method a request takes, and why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from remanence.forecast import NOTHING, CalibrationRun, Difficulty, Forecast, ReferencePool
from remanence.forecast.difficulty import SUMMARIES
from remanence.requests.calibration import (
    Calibration,
    CalibrationSettings,
    TrialResult,
    with_targets,
    without_targets,
)
from remanence.requests.criterion import Criterion
from remanence.requests.method_choice import MethodForecast, calibrated_forecast, came_back, why
from remanence.requests.routing import Routing, choose_routing, explain, hard_from, way_of, without_work
from remanence.requests.verdict import can_be_judged
from remanence.types import Scores
from remanence.unlearning import FoldTargets

RETRAINING = {"steps": 1000.0, "seconds": 10.0, "test": 0.9}


def difficulty(loss: float) -> Difficulty:
    return Difficulty(50, dict.fromkeys(SUMMARIES, loss), {})


def trial(method: str, loss: float, steps: float, *, reached: bool = True, stays: bool = True) -> TrialResult:
    run = CalibrationRun(f"{loss:g}", difficulty(loss), steps, reached)
    return TrialResult(run, 0.0, 0.01, method, stays if reached else None)


def calibration(trials: list[TrialResult]) -> Calibration:
    settings = CalibrationSettings(method="auto", budget=1000)
    zeros = np.zeros((2, 4))
    pool = ReferencePool(np.arange(4), np.zeros(4, int), np.ones((2, 4), bool), zeros, zeros)
    return Calibration(settings, pool, trials, RETRAINING)


def reset_only_lasts_below(loss: float) -> Calibration:
    sets = [trial("reset", each, 250, stays=bool(each < loss)) for each in np.geomspace(1, 10_000, 40)]
    of_one_difficulty = replace(trial("finetune", 5.0, 9.0), seconds_per_step=1.0)
    level = replace(of_one_difficulty, run=replace(of_one_difficulty.run, name="level 0"))
    return calibration([level, *sets])


def test_a_failure_costs_a_retraining() -> None:
    made = reset_only_lasts_below(100)
    easy, hard = (calibrated_forecast(made, difficulty(loss)) for loss in (5.0, 5000.0))
    assert (easy.method, easy.forecast.steps) == ("reset", pytest.approx(250))
    assert (easy.success, hard.success) == (0.9, 0.1)
    assert [found.cost for found in (easy, hard)] == [pytest.approx(350), pytest.approx(1150)]


def test_only_sets_of_all_kinds_tell_what_a_request_takes() -> None:
    made = reset_only_lasts_below(100)
    assert made.method == "reset"
    assert len(made.runs) == 40
    assert made.seconds_per_step == 0.01


def test_the_reason_names_the_others() -> None:
    forecasts = (Forecast(steps, 0.0, 900.0, 0.9, 0.0) for steps in (250.0, 400.0))
    candidates = [
        MethodForecast(method, forecast, None, forecast.steps)
        for method, forecast in zip(("reset", "finetune"), forecasts, strict=True)
    ]
    assert why(candidates) == (
        "reset (250 steps): the fewest steps by laws measured on another run; instead of finetune (400 steps)."
    )


@pytest.mark.parametrize(("value", "expected"), [(1.5, True), (1.3, False), (-3.0, False)])
def test_membership_comes_back_on_one_side(value: float, expected: bool) -> None:
    assert came_back(Criterion("excess", 0.8, 0.3), value) is expected


def test_targets_come_from_the_calibration() -> None:
    assert with_targets("out_of_fold", {"weight": 2.0}, Path("/run/calibration")) == {
        "targets": "/run/calibration",
        "weight": 2.0,
    }
    assert with_targets("out_of_fold", {"targets": "mine"}, Path("/run")) == {"targets": "mine"}
    assert with_targets("reset", {}, Path("/run")) == {}
    assert with_targets("reset", {"targets": ""}, Path("/run")) == {"targets": "/run"}
    assert without_targets({"targets": "", "distillation": 0.5}) == {"distillation": 0.5}


LEVELS = np.geomspace(1, 128, 8)


def level(
    method: str, number: int, steps: float, *, lasts: bool = True, done: bool = False, reached: bool = True
) -> TrialResult:
    of_level = replace(difficulty(float(LEVELS[number])), done=done)
    run = CalibrationRun(f"level {number}", of_level, steps, reached)
    return TrialResult(run, 0.0, 0.01, method, lasts if reached else None)


def levels() -> list[TrialResult]:
    """The two easiest look forgotten; outputs last up to level 4; reset takes 200 steps, shrinking 300."""
    return [
        *(level("out_of_fold", number, 30, lasts=number < 5, done=number < 2) for number in range(8)),
        *(level("reset", number, 200) for number in range(2, 8)),
        *(level("shrink_perturb", number, 300) for number in range(2, 8)),
    ]


def between(number: int) -> float:
    return pytest.approx(np.sqrt(LEVELS[number] * LEVELS[number + 1]))


def test_losses_part_examples_where_the_calibration_says_so() -> None:
    routing = choose_routing(levels(), 1000, None)
    assert (routing.easy, routing.hard, routing.harder) == (between(1), between(4), "reset")
    assert routing.options() == {"easy": routing.easy, "hard": routing.hard, "harder": "reset"}
    assert choose_routing(levels(), 1000, 9.0).hard == 9.0, "the reference models are wrong from here on"
    assert choose_routing(levels(), 1000, 99.0).hard == between(4), "outputs do not last where they are right"
    assert choose_routing(levels(), 1000, 0.1).hard == between(1), "what looks forgotten needs nothing"


def with_outputs(change: Callable[[int, TrialResult], TrialResult]) -> list[TrialResult]:
    return [
        change(int(trial.run.name.split()[1]), trial) if trial.method == "out_of_fold" else trial
        for trial in levels()
    ]


def test_outputs_alone_are_never_chosen_where_they_do_not_last() -> None:
    """However few steps they take: what comes back was not forgotten."""
    hidden = with_outputs(lambda _, trial: replace(trial, stays=False, run=replace(trial.run, steps=1.0)))
    assert choose_routing(hidden, 1000, None).hard == choose_routing(hidden, 1000, None).easy
    unforgotten = with_outputs(lambda _, trial: replace(trial, run=replace(trial.run, reached=False)))
    assert choose_routing(unforgotten, 1000, None).hard == choose_routing(unforgotten, 1000, None).easy
    lasting = with_outputs(lambda _, trial: replace(trial, stays=True))
    assert choose_routing(lasting, 1000, None) == Routing(between(1), None, "reset")


@pytest.mark.parametrize("failing", [3, 4, 5, 6])
def test_a_single_set_that_does_not_last_decides_nothing(failing: int) -> None:
    trials = with_outputs(lambda number, trial: replace(trial, stays=number != failing))
    assert choose_routing(trials, 1000, None).hard is None


def test_neither_do_steps() -> None:
    slow = with_outputs(lambda _, trial: replace(trial, stays=True, run=replace(trial.run, steps=900.0)))
    assert choose_routing(slow, 1000, None).hard is None


def answers(wrong: np.ndarray, models: int = 4) -> FoldTargets:
    """Ten classes; each example is left out by so many models, of which this share answers with the next class."""
    n = len(wrong)
    labels = np.arange(n) % 10
    rows, model = np.divmod(np.arange(n * models), models)
    given = (labels[rows] + (model < np.round(wrong[rows] * models))) % 10
    outputs = np.log(np.eye(10, dtype=np.float32)[given] * 0.9 + 0.01)
    order = np.random.default_rng(0).permutation(n)  # the losses are not in the order of the ids
    ids, losses = np.arange(n), np.arange(n) + 1.0
    targets = FoldTargets(ids, outputs, rows, model, np.zeros(n, int), labels, losses)
    position = np.argsort(order)
    return replace(targets, rows=position[rows], labels=labels[order], losses=losses[order])


def test_hard_is_where_models_that_never_saw_an_example_get_it_wrong() -> None:
    wrong = np.zeros(200)
    wrong[160:] = 0.5
    assert hard_from(answers(wrong)) == 161.0
    assert hard_from(answers(np.zeros(200))) is None
    assert hard_from(answers(np.ones(200))) == 1.0
    noisy = wrong.copy()
    noisy[[20, 90]] = 1.0  # two examples among easy ones that all get wrong
    assert hard_from(answers(noisy)) == 161.0
    shares, models = answers(wrong).wrong_answers()
    assert sorted(shares) == sorted(wrong)
    assert set(models) == {4.0}


def test_hard_is_where_isotonic_regression_passes_the_tolerance() -> None:
    """The slow and obvious form: the largest of the smallest means over ranges that hold the position."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        wrong = np.round(4 * rng.uniform(size=30) ** 4) / 4
        fit = [
            max(min(wrong[a : b + 1].mean() for b in range(i, 30)) for a in range(i + 1)) for i in range(30)
        ]
        first = next((i for i, value in enumerate(fit) if value > 0.05 + 1e-12), None)
        assert hard_from(answers(wrong)) == (None if first is None else first + 1.0)


def test_weights_are_drawn_anew_in_another_way_only_if_it_costs_less_beyond_chance() -> None:
    """One set on which shrinking is much faster decides nothing; all of them do."""

    def shrinking(steps: Callable[[int], float]) -> list[TrialResult]:
        return [
            replace(trial, run=replace(trial.run, steps=steps(int(trial.run.name.split()[1]))))
            if trial.method == "shrink_perturb"
            else trial
            for trial in levels()
        ]

    assert (
        choose_routing(shrinking(lambda number: 20.0 if number == 7 else 210.0), 1000, None).harder == "reset"
    )
    faster = choose_routing(shrinking(lambda number: 100.0 + number), 1000, None)
    assert faster.harder == "shrink_perturb"


def test_without_outputs_or_units_the_others_are_taken() -> None:
    no_outputs = [trial for trial in levels() if trial.method != "out_of_fold"]
    assert choose_routing(no_outputs, 1000, None) == Routing(0.0, 0.0, "reset")
    no_units = [trial for trial in levels() if trial.method != "reset"]
    assert choose_routing(no_units, 1000, None).harder == "shrink_perturb"


def test_the_plan_says_how_many_examples_are_unlearned_how_and_why() -> None:
    routing = choose_routing(levels(), 1000, None)
    losses = Scores("privacy_loss", np.arange(6), np.array([0.5, 1.5, 5.0, 20.0, 50.0, 500.0]))
    sentence = explain(routing.options(), levels(), losses, np.array([0, 1, 2, 4, 5]))
    assert sentence.startswith("Of 5 examples, 2 with a privacy loss below 2.83 need nothing")
    assert "1 are drawn towards outputs of models that never saw them (3 of 3 calibration sets" in sentence
    assert (
        "for 2 from a loss of 22.6 on, weights are drawn anew by reset, since models that never saw such examples get "
        "more than 5% of them wrong, or outputs did not last (3 of 3 calibration sets" in sentence
    )


def test_a_set_without_anything_to_remove_resets_no_weights() -> None:
    ids, losses = np.arange(6), np.array([1.0, 2.0, 9.0, 3.0, 700.0, 5.0])
    options = {"easy": 4.0, "hard": 8.0, "harder": "reset"}
    changed = without_work(options, Scores("privacy_loss", ids, losses), ids[:5])
    assert "hard" not in changed
    assert changed["easy"] > 700.0
    assert without_work(options, Scores("privacy_loss", ids, losses), ids[:1])["easy"] > 4.0


@pytest.mark.parametrize(
    ("error", "size", "expected"), [(0.3, 40, True), (0.3, 19, False), (0.6, 400, False)]
)
def test_only_a_set_that_can_be_judged_may_need_nothing(error: float, size: int, expected: bool) -> None:
    assert can_be_judged(error, size) is expected


def test_the_way_of_a_set_is_that_of_its_hardest_examples() -> None:
    losses = Scores("privacy_loss", np.arange(6), np.array([1.0, 2, 3, 4, 5, 6]))
    options = {"easy": 3.0, "hard": 5.0, "harder": "reset"}
    ways = [way_of("routed", options, losses, np.array(ids)) for ids in ([0, 1], [0, 2, 3], [0, 2, 4])]
    assert ways == [NOTHING, "out_of_fold", "reset"]
    assert (
        way_of("routed", without_work(options, losses, np.array([0, 5])), losses, np.array([0, 5])) == NOTHING
    )
    assert way_of("routed", {"easy": 3.0, "harder": "reset"}, losses, np.array([5])) == "out_of_fold"
    assert way_of("finetune", {}, losses, np.array([5])) == ""
