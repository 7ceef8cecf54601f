"""Which method a request takes, and why."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import remanence as rm
from remanence.forecast import CalibrationRun, Difficulty, ReferencePool
from remanence.forecast.difficulty import SUMMARIES
from remanence.requests.calibration import (
    CANDIDATES,
    Calibration,
    CalibrationSettings,
    TrialResult,
    with_targets,
)
from remanence.requests.criterion import Criterion
from remanence.requests.method_choice import came_back, method_forecasts, why

RETRAINING = {"steps": 1000.0, "seconds": 10.0, "test": 0.9}


def difficulty(loss: float) -> Difficulty:
    return Difficulty(50, dict.fromkeys(SUMMARIES, loss), {})


def trial(method: str, loss: float, steps: float, *, reached: bool = True, stays: bool = True) -> TrialResult:
    run = CalibrationRun(f"{loss:g}", difficulty(loss), steps, reached)
    return TrialResult(run, "mia_confidence", 0.0, 0.01, method, stays if reached else None)


def calibration(trials: list[TrialResult]) -> Calibration:
    settings = CalibrationSettings(method="auto", budget=1000)
    zeros = np.zeros((2, 4))
    pool = ReferencePool(np.arange(4), np.zeros(4, int), np.ones((2, 4), bool), zeros, zeros)
    return Calibration(settings, pool, trials, RETRAINING)


def made() -> Calibration:
    """Out-of-fold targets are quick but do not last above a loss of 100; fine-tuning ends there; reset takes 250."""
    losses = np.geomspace(1, 10_000, 40)
    trials = []
    for loss in losses:
        hard = loss > 100
        trials += [
            trial("finetune", loss, 1000 if hard else 400, reached=not hard),
            trial("out_of_fold", loss, 40, stays=not hard),
            trial("reset", loss, 250),
        ]
    return calibration(trials)


def test_each_difficulty_takes_the_method_with_the_smallest_expected_cost() -> None:
    middle, hard = (method_forecasts(made(), difficulty(loss), "mia_confidence") for loss in (5.0, 5000.0))
    assert middle[0].method == "out_of_fold"
    assert hard[0].method == "reset"
    assert [candidate.cost for candidate in hard] == sorted(candidate.cost for candidate in hard)
    lasting = {candidate.method: candidate.success for candidate in hard}
    assert lasting == {"reset": 0.9, "out_of_fold": 0.1, "finetune": 0.1}
    assert hard[0].cost == pytest.approx(hard[0].forecast.steps + 100)


def test_the_reason_names_the_others() -> None:
    sentence = why(method_forecasts(made(), difficulty(5000.0), "mia_confidence"))
    assert sentence.startswith(
        "reset (250 steps, forgotten and stays so with probability 0.90): the smallest"
    )
    assert "instead of out_of_fold (" in sentence


def test_one_method_is_no_choice() -> None:
    one = [entry for entry in made().trials if entry.method == "reset"]
    assert [
        found.method for found in method_forecasts(calibration(one), difficulty(5.0), "mia_confidence")
    ] == ["reset"]


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        ("mia_confidence", 0.74, True),
        ("mia_confidence", 0.76, False),
        ("mia_confidence", 1.0, False),
        ("log_odds", 1.2, True),
        ("log_odds", -3.0, False),
    ],
)
def test_membership_comes_back_on_one_side(metric: str, value: float, expected: bool) -> None:
    criterion = Criterion("mia_confidence", 0.8, 0.03)
    if metric == "log_odds":
        criterion = Criterion("log_odds", 0.8, 0.3)
    assert came_back(criterion, value) is expected


def test_auto_takes_no_options_and_targets_come_from_the_calibration() -> None:
    with pytest.raises(rm.InputError, match="`options` cannot be given with auto; got learning_rate"):
        CalibrationSettings(method="auto", options={"learning_rate": 0.1})
    assert CalibrationSettings(method="auto").methods == CANDIDATES
    assert CalibrationSettings().methods == ("finetune",)
    assert with_targets("out_of_fold", {"weight": 2.0}, Path("/run/calibration")) == {
        "targets": "/run/calibration",
        "weight": 2.0,
    }
    assert with_targets("out_of_fold", {"targets": "mine"}, Path("/run")) == {"targets": "mine"}
    assert with_targets("reset", {}, Path("/run")) == {}


def test_seconds_and_runs_are_those_of_the_method() -> None:
    slow = [replace(entry, seconds_per_step=1.0) for entry in made().trials if entry.method == "reset"]
    others = [entry for entry in made().trials if entry.method == "finetune"]
    both = calibration([*others, *slow])
    assert both.methods == ("finetune", "reset")
    assert both.seconds_per_step("reset") == 1.0
    assert both.seconds_per_step() == 0.01
    assert len(both.runs("mia_confidence", "reset")) == 40
