"""`remanence audit` and `remanence barrier`, on runs that were really trained."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import remanence as rm
from remanence.audit import METRICS
from remanence.cli.main import run
from remanence.data import digits
from remanence.forgetting import write_forget_sets
from remanence.storage import Draft, seal_in_place
from remanence.training import Recipe, RunSettings, train_run

TRAIN, _ = digits()
FORGET = TRAIN.ids[:60]


def train(out: Path, **more: object) -> Path:
    options: dict[str, object] = {"hidden": (24,)}
    settings = {
        "data": "digits",
        "model": "mlp",
        "recipe": Recipe(8, 0.1),
        "record": 0,
        "model_options": options,
    }
    train_run(RunSettings(**(settings | more)), out)  # type: ignore[arg-type]
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    write_forget_sets(place / "set.json", [rm.ForgetSet("first", FORGET)])
    write_forget_sets(place / "all.json", [rm.ForgetSet("everything", TRAIN.ids)])
    train(place / "run", poison=tuple(FORGET.tolist()))
    train(place / "plain")
    for seed in (1, 2, 3):
        train(place / f"oracle{seed}", seed=seed, without=tuple(FORGET.tolist()))
    train(place / "wide", model_options={"hidden": (25,)})
    return place


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    assert run([str(each) for each in (*arguments, "--json")]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def oracles(place: Path, n: int = 3) -> list[object]:
    return ["--oracles", *(place / f"oracle{i}" for i in range(1, n + 1))]


def test_an_audit_is_a_table_beside_the_oracles(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(
        capsys, "audit", place / "run", place / "plain", "--forget", place / "set.json", *oracles(place)
    )
    assert found["oracles"] == 3
    poisoned, plain = found["audits"]  # type: ignore[misc]
    names = [each["metric"] for each in poisoned["findings"]]
    expected = {"ua", "ra", "test", "mia", "mia_confidence", "mia_loss", "mia_entropy", "gus", "disagreement"}
    assert expected <= set(names)
    assert "klom" not in names, "there are too few runs and oracles for it"
    assert not any(name.startswith("gus") for name in (each["metric"] for each in plain["findings"]))
    assert poisoned["noise_variance"]["as_the_network_sees_it"] == 0.062
    variance = float(TRAIN.inputs.double().var(correction=0))
    assert poisoned["noise_variance"]["on_standardized_inputs"] == pytest.approx(0.062 / variance)
    for each in poisoned["findings"]:
        assert each["meaning"] == METRICS[each["metric"]].meaning
        if each["distance"] is not None:
            assert each["distance"] == pytest.approx(each["value"] - each["oracle_mean"])
            assert (each["verdict"] == "within") == (abs(each["distance"]) <= each["tolerance"] + 1e-9)
    by_name = {each["metric"]: each for each in poisoned["findings"]}
    assert by_name["gus_z"]["value"] < by_name["gus_z"]["oracle_mean"]
    assert abs(by_name["gus_z"]["oracle_mean"]) < 2.58


def test_people_get_tables_and_what_they_mean(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "audit",
        place / "run",
        "--forget",
        place / "set.json",
        *oracles(place),
        "--metrics",
        "ua",
        "gus",
        "disagreement",
    ]
    assert run([str(each) for each in arguments]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert METRICS["disagreement"].meaning in text
    assert run([str(argument) for argument in [*arguments[:-1], "klom"]]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "needs at least 5 oracles and as many runs that differ only in their seeds; got 3 and 1" in told
    assert "The variance of the noise is 0.062 on inputs as the network sees them" in text


def test_shadow_models_are_trained_once_and_their_cost_is_said_first(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "audit",
        place / "plain",
        "--forget",
        place / "set.json",
        *oracles(place),
        "--metrics",
        "u_lira",
    ]
    options = ["u_lira_accuracy", "--shadows", 6, "--cache", tmp_path, "--workers", 1, "--json"]
    assert run([str(each) for each in (*arguments, *options)]) == 0
    captured = capsys.readouterr()
    assert "6 shadow models of 160 training and 0 unlearning steps each, 960 steps in total" in captured.err
    made = sorted((tmp_path / "shadows").glob("shadow-*"))
    assert len(made) == 6
    before = [path.stat().st_mtime_ns for path in made]
    assert run([str(each) for each in (*arguments, *options)]) == 0
    again = capsys.readouterr()
    assert "6 of them are already in" in again.err
    accuracy = json.loads(again.out)["audits"][0]["findings"][1]
    assert accuracy["metric"] == "u_lira_accuracy"
    assert accuracy["value_sd"] > 0
    assert accuracy["oracle_mean"] == 0.5
    assert accuracy["conclusive"] is (accuracy["verdict"] != "unknown")
    assert json.loads(again.out) == json.loads(captured.out)
    assert [path.stat().st_mtime_ns for path in made] == before


def test_a_barrier_between_two_runs(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [place / "oracle1", place / "oracle2"]
    matched = said(capsys, "barrier", *pair, "--on", "test", "--points", 9)
    plain = said(capsys, "barrier", *pair, "--on", "test", "--points", 9, "--match", "none")
    value = [each["summary"][0]["mean"] for each in (matched, plain)]  # type: ignore[index]
    assert value[0] < value[1]
    same = said(capsys, "barrier", pair[0], pair[0], "--points", 5, "--examples", 100)
    assert all(row["mean"] < 1e-6 for row in same["summary"])  # type: ignore[attr-defined]
    assert [row["subset"] for row in same["summary"]] == ["train", "test"]  # type: ignore[attr-defined]


def test_barriers_beside_oracles_are_kept_and_drawn(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "barriers"
    models = ["--before", place / "run", "--after", place / "plain", "--forget", place / "set.json"]
    arguments = ["barrier", *oracles(place), *models, "--points", 5, "--rounds", 1, "--out", out]
    found = said(capsys, *arguments)
    kinds = [(row["kind"], row["subset"], row["pairs"]) for row in found["summary"]]  # type: ignore[attr-defined]
    assert kinds == [
        (k, s, 3) for k in ("before", "after", "oracles") for s in ("train", "test", "forget", "retain")
    ]
    assert json.loads((out / "barriers.json").read_text()) == found
    lines = (out / "curves.csv").read_text().splitlines()
    assert lines[0] == "kind,a,b,subset,place,loss,rise"
    places = [len(curve["places"]) for pair in found["pairs"] for curve in pair["curves"].values()]  # type: ignore
    assert len(lines) == 1 + sum(places)
    assert ElementTree.parse(out / "barriers.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    pairs = sorted((out / "pairs").iterdir())
    assert len(pairs) == 9
    pairs[0].unlink()
    before = {path: path.stat().st_mtime_ns for path in pairs[1:]}
    assert said(capsys, *arguments) == found  # only the missing pair is walked again
    assert {path: path.stat().st_mtime_ns for path in pairs[1:]} == before
    assert pairs[0].exists()
    assert run([str(each) for each in arguments]) == 0
    assert "half the time if they are distributed alike" in " ".join(capsys.readouterr().out.split())


def no_weights(place: Path) -> Path:
    path = place / "no-weights"
    if not path.exists():
        path.mkdir()
        Draft(path).config({"trace": 1})
        seal_in_place(path, "training", ["config.toml"])
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["audit", "plain", "--forget", "set.json", "--oracles", "run"],
            "was trained on 60 of the 60 examples",
        ),
        (
            ["audit", "plain", "--forget", "set.json", "--metrics", "gus"],
            "`gus` needs a run whose forget set was",
        ),
        (
            ["audit", "plain", "--forget", "set.json", "--metrics", "klom"],
            "`klom` needs oracles; pass --oracles",
        ),
        (["audit", "plain", "--forget", "set.json", "--metrics", "u_lira"], "needs shadows; pass --shadows"),
        (["audit", "plain", "--forget", "set.json", "--metrics", "mie"], "Did you mean 'mia'"),
        (["audit", "plain", "--forget", "all.json"], "must leave examples to retain"),
        (
            ["audit", "plain", "run", "--forget", "set.json", "--shadows", "6"],
            "audit runs that were made differently one by one",
        ),
        (
            ["audit", "plain", "--forget", "set.json", "--shadows", "3"],
            "even number of shadow models, 4 or more",
        ),
        (["audit", "plain", "--forget", "set.json", "--budget", "0"], "4 of them take about"),
        (["audit", "plain", "--forget", "missing.json"], "missing.json"),
        (["audit", "missing", "--forget", "set.json"], "is not a folder made by Remanence"),
        (["audit", "no-weights", "--forget", "set.json"], "no model"),
        (["audit", "--forget", "set.json"], "Expected at least one run in RUNS"),
        (["audit", "plain", "--forget", "set.json", "--tolerance", "0"], "--tolerance must be above 0"),
        (["barrier", "plain", "wide"], "same weights"),
        (["barrier", "plain"], "Expected two RUNS, or --oracles with --before and --after"),
        (["barrier", "plain", "run", "--on", "forget"], "needs a forget set"),
        (["barrier", "plain", "run", "--points", "2"], "--points must be at least 3"),
        (["barrier", "plain", "run", "--examples", "0"], "--examples must be at least 1"),
        (["barrier", "plain", "no-weights"], "no model"),
        (["barrier", "plain", "run", "--out", "set.json"], "is a file; --out must be a folder"),
        (["barrier", "--oracles", "oracle1", "oracle2"], "as --before and --after, and no RUNS"),
        (
            ["barrier", "--oracles", "run", "--before", "plain", "--forget", "set.json"],
            "was trained on 60 of",
        ),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    words: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    no_weights(place)
    monkeypatch.chdir(place)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
