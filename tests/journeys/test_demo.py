"""The demo as a person runs it: a process of its own, real data, real worker processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from remanence.cli.main import run as command
from remanence.stages import Store

COMMAND = [sys.executable, "-m", "remanence", "demo"]


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        **options,  # type: ignore[call-overload]
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo") / "out"
    done = run("--quick", "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    (out / "stdout.json").write_text(done.stdout)
    return out


def test_json_on_stdout_is_the_results_file(finished: Path) -> None:
    assert json.loads((finished / "stdout.json").read_text()) == json.loads(
        (finished / "results.json").read_text()
    )


def test_results_have_the_promised_shape(finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    assert len(results["bands"]) == 5
    losses = [band["mean_privacy_loss"] for band in results["bands"]]
    assert losses == sorted(losses)
    assert len(set(losses)) == 5
    for band in results["bands"]:
        for metric in ("mia_confidence", "ua"):
            times = band["epochs_to_unlearn"][metric]
            assert {"mean", "sd", "reached", "seeds", "interval", "by_seed", "limit"} <= set(times)
            assert 0 <= times["reached"] <= times["seeds"] == len(times["by_seed"]) == 1
            assert set(times["by_seed"][0]) == {"epochs", "reached"}
            assert times["interval"] is None, "one seed has none"
        assert len(band["curves"]["mia_confidence"][0]) == results["settings"]["unlearn"]["epochs"] + 1
    assert [band["name"] for band in results["bands"]] == [
        "easiest",
        "lower quartile",
        "median",
        "upper quartile",
        "hardest",
    ]
    assert set(results["tuning"]) == {"finetune"}
    assert results["preset"] == "smoke"
    assert {"mia_confidence", "ua"} == set(results["spearman"])
    assert results["status"] == "heuristic"
    assert results["reasons"]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.images = 0
        self.without_text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("src", "href", "xlink:href", "action"):
            target = values.get(name)
            if target and not target.startswith(("data:", "#")):
                self.outside.append(target)
        if tag == "img":
            self.images += 1
            if not values.get("alt"):
                self.without_text.append(str(values.get("src"))[:40])
        assert tag not in ("script", "iframe", "link")


def test_the_page_stands_alone(finished: Path) -> None:
    text = (finished / "report.html").read_text()
    page = _Page()
    page.feed(text)
    assert page.outside == []
    assert page.without_text == []
    assert page.images == 32
    assert "url(http" not in text
    assert "@import" not in text
    assert text.count("<svg") == 3
    assert "heuristic" in text
    assert sorted(path.name for path in (finished / "figures").iterdir()) == [
        "curves.png",
        "proxies.png",
        "times.png",
    ]


def test_a_second_run_computes_nothing_and_says_so(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((finished / "results.json").read_text())
    assert command(["demo", "--quick", "--out", str(finished)]) == 0
    assert "Found all" in capsys.readouterr().err
    after = json.loads((finished / "results.json").read_text())
    assert after["run"]["computed"] == 0
    assert {k: v for k, v in after.items() if k != "run"} == {k: v for k, v in before.items() if k != "run"}


@pytest.mark.journey
def test_a_killed_demo_goes_on_to_the_same_results(
    finished: Path,
    tmp_path: Path,
    wait_until: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Start from three quarters of the artifacts, kill the process that makes the rest, run again."""
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    for path in Store(out / "stages").artifacts()[::4]:
        shutil.rmtree(path)
    (out / "results.json").unlink()
    before = set(Store(out / "stages").artifacts())
    with subprocess.Popen([*COMMAND, "--quick", "--out", str(out)], stderr=subprocess.DEVNULL) as first:
        wait_until(lambda: set(Store(out / "stages").artifacts()) - before, first)
        os.kill(first.pid, signal.SIGKILL)
    assert not (out / "results.json").exists()
    capsys.readouterr()
    assert command(["demo", "--quick", "--json", "--out", str(out)]) == 0
    again = capsys.readouterr()
    assert re.search(r"Found \d+ of \d+ stages finished", again.err), "the kill must meet unfinished work"
    expected = json.loads((finished / "results.json").read_text())
    found = json.loads(again.out)
    assert found["bands"] == expected["bands"]


def test_it_runs_again_beside_its_own_folder(finished: Path, tmp_path: Path) -> None:
    """With the default `--out demo`, a folder named as the study lies where the command is given."""
    shutil.copytree(finished, tmp_path / "demo")
    again = run("--quick", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "Found all" in again.stderr
    assert "easiest" in again.stdout


@pytest.mark.journey
def test_interrupt_leaves_nothing_half_written(tmp_path: Path, wait_until: Callable[..., None]) -> None:
    out = tmp_path / "out"
    with subprocess.Popen(
        [*COMMAND, "--quick", "--out", str(out)], stderr=subprocess.PIPE, text=True
    ) as started:
        wait_until(lambda: list((out / "stages").glob("train-*")), started)
        started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert list(out.rglob(".partial-*")) == []
    assert not (out / "results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "--seeds must be at least 1; got 0."),
        (["--seeds", "x"], "unable to convert"),
        (["--workers", "0"], "--workers must be at least 1; got 0."),
        (["--sed", "3"], "Did you mean --seeds?"),
        (["--out", "/proc/nowhere"], "/proc/nowhere cannot be used"),
        (["--out", __file__], "is a file"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["demo", *arguments]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_a_process_with_wrong_input_ends_with_2() -> None:
    done = run("--seeds", "0")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    assert command(["demo", "--out", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_demos_do_not_share_a_folder(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from remanence.storage.lock import exclusive

    with exclusive(finished / ".lock", "here"):
        assert command(["demo", "--quick", "--out", str(finished)]) == 2
    assert "Another demo is running" in capsys.readouterr().err
