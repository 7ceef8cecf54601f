"""A run calibrated with several methods: the plan says which one and why, and the request is carried out with it."""

import json
from pathlib import Path

import pytest

from remanence.cli.main import run as command
from remanence.data import digits
from remanence.requests import CalibrationSettings, calibrate, read_calibration, verify_evidence
from remanence.requests.calibration import CANDIDATES
from remanence.training import Recipe, RunSettings, open_run, train_run

pytestmark = pytest.mark.journey

IDS = digits()[0].ids


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("auto")
    recipe = Recipe(epochs=3, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
    train_run(
        RunSettings("digits", "mlp", recipe, record=3, placement="even", model_options={"hidden": [16]}),
        place / "run",
    )
    settings = CalibrationSettings(method="auto", sets=20, small=0, models=20, budget=30)
    calibrate(open_run(place / "run"), settings, workers=1)
    (place / "request.csv").write_text("id\n" + "".join(f"{example}\n" for example in IDS[100:140]))
    return place


def test_every_candidate_was_tried_and_targets_are_kept(calibrated: Path) -> None:
    calibration = read_calibration(open_run(calibrated / "run"))
    assert calibration.methods == CANDIDATES
    assert all(len(calibration.runs("mia_confidence", method)) == 20 for method in CANDIDATES)
    assert all((trial.stays is None) == (not trial.run.reached) for trial in calibration.trials)
    assert calibration.targets is not None
    assert len(calibration.targets.ids) == len(IDS)
    fewer = calibration.without(IDS[:5])
    assert fewer.targets is not None
    assert not set(IDS[:5].tolist()) & set(fewer.targets.ids.tolist())


def test_the_plan_says_why_and_the_request_takes_that_method(
    calibrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, request, out = (str(calibrated / name) for name in ("run", "request.csv", "new"))
    assert command(["plan", run, "--ids", request]) == 0
    assert "the smallest expected cost" in capsys.readouterr().out
    assert command(["plan", run, "--ids", request, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {candidate["method"] for candidate in plan["methods"]} == set(CANDIDATES)
    assert plan["method"] == plan["methods"][0]["method"]
    assert command(["forget", run, "--ids", request, "--out", out, "--no-relearning"]) in (0, 3, 4)
    evidence = json.loads((calibrated / "new" / "evidence.json").read_text())
    assert str(calibrated) not in json.dumps(evidence)  # no path of this machine
    assert all(check.holds for check in verify_evidence(calibrated / "new" / "evidence.json"))
    made = open_run(calibrated / "new")
    assert made.unlearning["method"] == plan["method"]


@pytest.mark.parametrize("method", ["out_of_fold", "reset"])
def test_targets_of_the_calibration_serve_unlearn_too(calibrated: Path, method: str) -> None:
    run, chosen = str(calibrated / "run"), str(calibrated / f"{method}.json")
    assert command(["select", run, "--how", "hardest", "--size", "30", "--out", chosen]) == 0
    options = [
        "--method",
        method,
        "--option",
        f"targets={calibrated / 'run' / 'calibration'}",
        "--epochs",
        "1",
    ]
    out = str(calibrated / method)
    assert command(["unlearn", run, "--forget", chosen, *options, "--out", out]) == 0


def test_a_request_of_the_hardest_is_told_from_a_random_one(
    calibrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, chosen = str(calibrated / "run"), str(calibrated / "hard.json")
    assert command(["select", run, "--how", "hardest", "--size", "40", "--out", chosen]) == 0
    for ids, expected in ((chosen, True), (str(calibrated / "request.csv"), False)):
        capsys.readouterr()
        assert command(["plan", run, "--ids", ids]) == 0
        assert ("It removes 100% of all examples as hard as these." in capsys.readouterr().out) is expected
