"""A run calibrated with `auto`: the plan says how each example is unlearned and why, and it is carried out so."""

import json
from pathlib import Path

import pytest

from remanence.cli.main import run as command
from remanence.data import digits
from remanence.errors import InputError, RunFolderError
from remanence.requests import CalibrationSettings, calibrate, read_calibration, verify_evidence
from remanence.requests.calibration import LEVEL_METHODS, LEVELS, ROUTED
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
    settings = CalibrationSettings(method="auto", models=8, budget=60)
    calibrate(open_run(place / "run"), settings, workers=1)
    (place / "request.csv").write_text("id\n" + "".join(f"{example}\n" for example in IDS[100:140]))
    return place


def test_every_level_was_tried_by_the_methods_that_may_be_used_there_and_targets_are_kept(
    calibrated: Path,
) -> None:
    calibration = read_calibration(open_run(calibrated / "run"))
    assert calibration.method == ROUTED
    assert len(calibration.runs) == 20
    levels = [trial for trial in calibration.trials if trial.run.name.startswith("level")]
    names = {
        method: {trial.run.name for trial in levels if trial.method == method} for method in LEVEL_METHODS
    }
    done = {trial.run.name for trial in levels if trial.method == "out_of_fold" and trial.run.difficulty.done}
    assert len(names["out_of_fold"] | names["reset"]) == LEVELS
    assert names["reset"] == names["shrink_perturb"]
    assert not done & names["reset"]
    assert calibration.settings.options.keys() <= {"easy", "hard", "harder"}
    tested = [trial for trial in calibration.trials if trial.stays is not None]
    assert all(trial.run.reached and not trial.run.difficulty.done for trial in tested)
    assert all(trial.last >= trial.run.steps for trial in calibration.trials)
    assert calibration.targets is not None
    assert len(calibration.targets.ids) == len(IDS)
    fewer = calibration.without(IDS[:5])
    assert fewer.targets is not None
    assert not set(IDS[:5].tolist()) & set(fewer.targets.ids.tolist())


def test_the_plan_says_why_and_the_request_is_carried_out_so(
    calibrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, request, out = (str(calibrated / name) for name in ("run", "request.csv", "new"))
    assert command(["plan", run, "--ids", request]) == 0
    assert "Of 40 examples, " in capsys.readouterr().out
    assert command(["plan", run, "--ids", request, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["method"] == ROUTED
    assert "calibration sets" in plan["reason"]
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
        assert ("It removes 100% of all examples as hard as these, " in capsys.readouterr().out) is expected


def test_auto_takes_no_options_and_other_settings_are_refused(calibrated: Path) -> None:
    run = open_run(calibrated / "run")
    with pytest.raises(RunFolderError, match="is calibrated with `method` auto"):
        calibrate(run, CalibrationSettings(method="reset", models=16), workers=1)
    with pytest.raises(
        InputError, match="`options` cannot be given with auto, which finds them; got learning_rate"
    ):
        CalibrationSettings(method="auto", options={"learning_rate": 0.1}).resolved(run)
