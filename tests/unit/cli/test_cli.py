import json
import re
from pathlib import Path

import pytest

from remanence import __version__
from remanence.cli import console, main
from remanence.cli.exit_codes import ExitCode
from remanence.cli.main import run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_an_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dmo"]) == 2
    captured = capsys.readouterr()
    assert 'Did you mean "demo"?' in captured.err
    assert captured.out == ""


def commands() -> list[list[str]]:
    """Every command and subcommand there is."""
    found: list[list[str]] = []

    def walk(app: object, path: list[str]) -> None:
        for name in app:  # type: ignore[attr-defined]
            if not name.startswith("-"):
                found.append([*path, name])
                walk(app[name], [*path, name])  # type: ignore[index]

    walk(main.app, [])
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage" in text
    assert f"remanence {' '.join(command)}" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "Interrupted"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (PermissionError(13, "Permission denied", "/x"), 2, "/x cannot be used: Permission denied"),
    ],
)
def test_trouble_is_one_sentence(
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def trouble(arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr(main, "execute", trouble)
    assert run([]) == code
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_an_unforeseen_error_has_a_code_of_its_own_and_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trouble(arguments: list[str]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "execute", trouble)
    assert run([]) == ExitCode.DEFECT == 70
    (log,) = re.findall(r"\S+\.log", capsys.readouterr().err)
    assert "ZeroDivisionError" in Path(log).read_text()
    assert "in trouble" in Path(log).read_text()
    Path(log).unlink()


def test_json_refuses_what_is_not_json(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        console.print_json({"a": float("nan")})


def test_markup_in_a_message_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(f"bad [red]{Path('x')}[/red]")
    assert "bad [red]x[/red]" in capsys.readouterr().err
    console.print_error("a\\[/red]")
    assert "a\\[/red]" in capsys.readouterr().err


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error("a\x1b]0;title\x07\udcff")
    console.note("b\x1b[31m")
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "\\x1b]0;title\\x07" in shown
    assert "b\\x1b[31m" in shown


def test_a_name_with_markup_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "["
    command = ["train", "--data", "digits", "--model", "logistic", "--epochs", "1", "--record", "0"]
    assert run([*command, "--out", str(out / "red]")]) == 0
    assert "[/red]" in capsys.readouterr().out
