"""The library names arguments; the command line shows options, and the command that continues."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest

from remanence.cli import main
from remanence.cli.main import app, run
from remanence.cli.messages import continuation, in_options
from remanence.errors import InputError, NumericalError

TRAIN = ["train", "--data", "digits", "--out", "a run"]


@pytest.mark.parametrize(
    ("sentence", "arguments", "shown"),
    [
        ("`data_dir` is missing.", TRAIN, "--data-dir is missing."),
        ("`learning_rate` must be above 0.", TRAIN, "--learning-rate must be above 0."),
        ("`learning_rate` must be above 0.", ["bound", "steps", "1"], "--learning-rate must be above 0."),
        ("pass `force=True`.", ["score", "run"], "pass --force."),
        ("`ranges` and `options`", ["tune", "run"], "--range and --option"),
        ("`class_name` of `source`", ["select", "run"], "--class of SOURCE"),
        ("`overrides` of `studies`", ["study", "run", "demo"], "--set of STUDIES"),
        ("`runs`", ["audit", "run"], "RUNS"),
        ("`klom`, `remanence train`, `data dir`", TRAIN, "`klom`, `remanence train`, `data dir`"),
        ("`forget`", TRAIN, "`forget`"),
        ("`out`", [], "`out`"),
        ("`out`", ["study"], "`out`"),
    ],
)
def test_arguments_are_shown_as_the_options_of_the_running_command(
    sentence: str, arguments: list[str], shown: str
) -> None:
    assert in_options(sentence, app, arguments) == shown


@pytest.mark.parametrize(("error", "code"), [(InputError, 2), (NumericalError, 1)])
def test_every_error_of_the_library_is_translated(
    error: type[Exception], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trouble(arguments: list[str]) -> None:
        raise error("`data_dir` is\n    no folder.")

    monkeypatch.setattr(main, "execute", trouble)
    assert run(TRAIN) == code
    assert capsys.readouterr().err == "error: --data-dir is no folder.\n"


def test_a_real_error_of_the_library_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TRAIN, "--lr", "-1"]) == 2
    assert "--learning-rate must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        TRAIN,
        ["unlearn", "run", "--forget", "set.json", "--method", "finetune", "--out", "new"],
        ["tune", "run", "--method", "finetune", "--out", "tuning"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_needs_resume_is_continued_with_it(arguments: list[str]) -> None:
    for given in (arguments, [*arguments, "--resume"]):
        sentence, _, command = continuation(app, given).partition(": ")
        assert sentence == "To continue from the last checkpoint, run"
        assert shlex.split(command) == ["remanence", *arguments, "--resume"]
        assert app.parse_args(shlex.split(command)[1:])[1].arguments["resume"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--quick"],
        ["study", "run", "proxies", "--preset", "smoke"],
        ["calibrate", "run"],
        ["forget", "run", "--ids", "ids.csv", "--out", "new"],
        ["barrier", "a", "b", "--out", "barriers"],
        ["audit", "run", "--forget", "set.json", "--budget", "5"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_simply_continues_says_so(arguments: list[str]) -> None:
    sentence, _, command = continuation(app, arguments).partition(": ")
    assert sentence == "Finished work is kept. To continue, run the same command again"
    assert shlex.split(command) == ["remanence", *arguments]


@pytest.mark.parametrize(
    "arguments",
    [["barrier", "a", "b"], ["audit", "run", "--forget", "set.json"], ["certify"], ["study", "list"]],
    ids=" ".join,
)
def test_what_keeps_nothing_promises_nothing(arguments: list[str]) -> None:
    assert continuation(app, arguments) == ""


def test_ctrl_c_prints_the_command_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["train", "--data", "digits", "--model", "mlp", "--epochs", "2", "--record", "0"]
    arguments += ["--out", str(out)]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(import_module("remanence.training.train_run"), "train_and_record", interrupted)
        assert run(arguments) == 130
    message = capsys.readouterr().err
    assert message.startswith(
        "error: Interrupted. To continue from the last checkpoint, run: remanence train"
    )
    assert run(arguments) == 2, "without --resume it is refused"
    assert run(shlex.split(message.partition(" run: ")[2])[1:]) == 0
