"""The ladder of calibration budgets: no models at all, a few, more of them later, and what is left after a request."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from remanence.cli.main import run as command
from remanence.data import digits
from remanence.requests import (
    CalibrationSettings,
    ForgetOptions,
    Outcome,
    calibrate,
    forget,
    make_plan,
    read_calibration,
    verify_evidence,
)
from remanence.requests.request import make_request
from remanence.training import Recipe, RunSettings, open_run, train_run
from remanence.types import ForgetSet

IDS = digits()[0].ids
PLAIN = ForgetOptions(relearning=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("budgets")
    recipe = Recipe(epochs=4, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
    options = {"hidden": [16]}
    train_run(
        RunSettings("digits", "mlp", recipe, record=4, placement="even", model_options=options), place / "run"
    )
    (place / "request.csv").write_text("id\n" + "".join(f"{example}\n" for example in IDS[100:140]))
    return place


@pytest.fixture(scope="module")
def few(trained: Path) -> Path:
    """The same run, calibrated with as few models as possible."""
    shutil.copytree(trained / "run", trained / "few", ignore=shutil.ignore_patterns(".request*"))
    calibrate(
        open_run(trained / "few"), CalibrationSettings(method="finetune", models=4, budget=20), workers=1
    )
    return trained / "few"


def asked(run: Path, first: int, last: int) -> tuple[object, object]:
    opened = open_run(run)
    return opened, make_request(ForgetSet("request", IDS[first:last]), opened)


def test_a_fresh_run_is_planned_from_its_trace(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, request, page = (str(trained / name) for name in ("run", "request.csv", "plan.html"))
    assert command(["plan", run, "--ids", request, "--page", page, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["expected_if_never_trained_on"] is None
    assert plan["test_accuracy_change"] is None
    assert (plan["forecast"]["low"], plan["forecast"]["high"]) == (0.0, plan["retraining"]["steps"])
    assert plan["forecast"]["guaranteed"] == 0.0
    assert 0 < plan["forecast"]["steps"] <= plan["budget"]
    assert plan["criterion"]["metric"] == "steps"
    assert {candidate["method"] for candidate in plan["methods"]} == {"finetune", "reset"}
    assert any("never *forgotten*" in caveat for caveat in plan["caveats"])
    assert "Unlearning stops when" in Path(page).read_text()
    assert command(["plan", run, "--ids", request]) == 0
    assert "not known without a calibration" in " ".join(capsys.readouterr().out.split())


def test_harder_requests_are_forecast_to_take_longer_and_take_a_method_that_resets(trained: Path) -> None:
    opened = open_run(trained / "run")
    table = opened.trace().norms.sum(axis=0)
    order = opened.trace().ids[np.argsort(table)]
    plans = [
        make_plan(opened, make_request(ForgetSet("x", ids), opened)) for ids in (order[:40], order[-40:])
    ]
    by_finetuning = [
        next(row.forecast.steps for row in plan.methods if row.method == "finetune") for plan in plans
    ]
    assert by_finetuning[0] < by_finetuning[1]
    assert plans[1].method == "reset"


def test_without_models_a_request_is_carried_out_and_never_judged(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, request, out = (str(trained / name) for name in ("run", "request.csv", "new"))
    assert command(["forget", run, "--ids", request, "--out", out]) == 4
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("CARRIED OUT, NOT JUDGED (exit code 4)")
    assert "there is no model that was never trained on them" in printed
    evidence = json.loads((trained / "new" / "evidence.json").read_text())
    content = evidence.get("predicate", evidence)
    assert content["outcome"] == "carried out, not judged"
    needed = content["plan"]["criterion"]["target"]
    assert content["actual"]["stopped_at"] >= needed
    assert content["plan"]["forecast"]["steps"] > needed, (
        "the forecast counts the wait until accuracy is back"
    )
    metrics = {row["metric"]: row for row in content["audit"]}
    assert {"relearn_retain", "harm", "ua", "mia_confidence"} <= metrics.keys()
    assert all(check.holds for check in verify_evidence(trained / "new" / "evidence.json"))
    assert not (trained / "new" / "calibration").exists()
    patient = replace(PLAIN, budget=300)  # three epochs of training are too few to win accuracy back
    following = forget(*asked(trained / "new", 200, 230), trained / "newer", patient)
    assert following.outcome is Outcome.NOT_JUDGED


def test_too_small_a_budget_is_not_passed_off_as_carried_out(trained: Path, tmp_path: Path) -> None:
    options = ForgetOptions(relearning=False, budget=2, apart=True)
    assert (
        forget(*asked(trained / "run", 100, 140), tmp_path / "new", options).outcome is Outcome.NOT_FORGOTTEN
    )


@pytest.mark.journey
def test_four_models_give_a_criterion(few: Path) -> None:
    plan = make_plan(*asked(few, 100, 140))
    assert plan.criterion.metric == "excess"
    assert plan.expected is not None
    assert len(read_calibration(open_run(few)).pool.left_out) == 4


@pytest.mark.journey
def test_a_calibration_is_extended_and_what_is_there_stays(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(few, run)
    before = read_calibration(open_run(run))
    for arguments, sentence in (
        ([], "is calibrated with 4 models and 20 sets; ask for more"),
        (["--models", "6"], "must be at least 4 more than the 4"),
        (["--models", "8", "--method", "reset"], "is calibrated with --method finetune"),
        (["--models", "3"], "must be at least 4 for a criterion"),
    ):
        models = arguments or ["--models", "4"]
        assert command(["calibrate", str(run), *models, "--workers", "1"]) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
    calibrate(open_run(run), CalibrationSettings(method="finetune", models=8, sets=22), workers=1)
    after = read_calibration(open_run(run))
    assert len(after.pool.left_out) == 8
    assert np.array_equal(after.pool.log_odds[:4], before.pool.log_odds)
    assert list(after.trials[:20]) == list(before.trials)
    assert len(after.trials) == 22
    assert after.settings.budget == before.settings.budget
    assert not (run / ".calibrating").exists()


@pytest.mark.journey
def test_reference_models_of_removed_examples_are_listed_and_updated_or_discarded(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(few, run)
    result = forget(*asked(run, 100, 140), tmp_path / "new", PLAIN)
    listed = {artifact.path: artifact.description for artifact in result.remaining}
    assert "reference models that were trained on them" in listed[tmp_path / "new" / "calibration"]
    inherited = read_calibration(open_run(tmp_path / "new"))
    calibrate(open_run(tmp_path / "new"), CalibrationSettings(method="finetune", models=4), workers=1)
    renewed = read_calibration(open_run(tmp_path / "new"))
    assert inherited.inherited and not renewed.inherited  # noqa: PT018
    assert len(renewed.pool.ids) == len(IDS) - 40
    assert list(renewed.trials) == list(inherited.trials)
    assert not np.array_equal(renewed.pool.log_odds, inherited.pool.log_odds)
    capsys.readouterr()
    assert command(["purge", str(tmp_path / "new")]) in (0, 2)
    assert "reference models" not in capsys.readouterr().out
    options = ForgetOptions(relearning=False, keep_calibration=False, apart=True)
    discarded = forget(*asked(run, 100, 140), tmp_path / "other", options)
    assert not (tmp_path / "other" / "calibration").exists()
    assert not any("reference models" in artifact.description for artifact in discarded.remaining)
