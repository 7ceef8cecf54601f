"""Pages of the documentation, run from top to bottom as a reader would; and what a reader has by then."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

import remanence as rm
from remanence.cli.main import run as command

SOURCE = Path(rm.__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = ("console", "toml", "py", "text")
"""`console` shows commands behind a $ that are not run; the others are pieces of files."""
SHORTER = {
    "--model small_conv --epochs 35 --batch-size 32": "--model mlp --epochs 6 --batch-size 64",
    "--model small_conv --epochs 35": "--model mlp --epochs 6",
    "--model mlp": "--model mlp --option hidden=[64]",
    "-m remanence train": "-m remanence train --epochs 2",
    "--forget hard.json --method finetune --out new": "--forget hard.json --method finetune --epochs 1 --out new",
    "proxies.toml --preset smoke": "proxies.toml --preset smoke --set train.epochs=1 --set seeds=1",
    "proxies --preset smoke": "proxies --preset smoke --set train.epochs=1 --set seeds=1",
    "--method finetune --epochs 10 --workers 2": "--method finetune --epochs 1 --trials 2 --oracles 1",
    "--range coefficient=1e-5:1e-3": "--range coefficient=1e-5:1e-3 --epochs 1 --trials 2 --oracles 1",
    "--trials 20 --workers 2": "--trials 2 --oracles 1 --epochs 1",
    "--epochs 20": "--epochs 2",
    "--epochs 10": "--epochs 1",
    "--steps 500": "--steps 20",
    "remanence calibrate run  ": "remanence calibrate run --models 8 --sets 20 ",
    "--sets 20": "--sets 20 --budget 60 --workers 1",
    "u_lira_accuracy --budget 10": "u_lira_accuracy --shadows 6",
    "remanence barrier": "remanence barrier --points 3 --rounds 0 --examples 200",
    "--workers 2": "--workers 1",
    "--set seeds=3": "--set seeds=1",
    "--erase run --yes": "--erase run --yes --although-not-forgotten",
}
"""How-to pages are run at a size that a test can pay: smaller models, fewer epochs, trials and repetitions. Nothing
else is changed, and nothing at all in the tutorial."""


class Page:
    """One page that is run in the current folder."""

    def __init__(self, path: Path, *, shorter: bool = True) -> None:
        self.path, self._shorter = path, shorter
        self.blocks: list[tuple[str, str]] = BLOCK.findall(path.read_text(encoding="utf-8"))
        self.names: dict[str, Any] = {}

    def run(self) -> list[str]:
        """Run every block in order; the languages of those that were run."""
        ran = []
        for language, block in self.blocks:
            if language == "bash":
                for line in block.splitlines():
                    run_line(shortened(line) if self._shorter else line)
            elif language == "python":
                exec(compile(block, str(self.path), "exec"), self.names)
            else:
                assert language in NOT_RUN, f"{self.path.name} has a block of {language or 'nothing'}"
                continue
            ran.append(language)
        return ran

    def not_run(self) -> list[str]:
        """Lines that are shown and not run; each begins with a $."""
        lines = [
            line for language, block in self.blocks if language == "console" for line in block.splitlines()
        ]
        assert all(line.startswith("$ ") for line in lines), self.path
        return lines


def shortened(line: str) -> str:
    """The same command, smaller."""
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    return line


def run_line(line: str) -> None:
    """One command: ours in this process, since loading torch anew for each takes longer than most of them."""
    program, *arguments = shlex.split(line, comments=True)
    if program == "remanence" and arguments[0] == "dashboard":
        serve(arguments)
    elif program == "remanence":
        # a request that is not forgotten, or cannot be judged at the size of a test, is carried out all the same
        fine = (0, 3, 4) if arguments[0] == "forget" else (0,)
        assert command(arguments) in fine, line
    else:
        home = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": home, "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def serve(arguments: list[str]) -> None:
    """A dashboard serves until it is ended; that it serves is enough."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
    started = [sys.executable, "-m", "remanence", *arguments]
    with subprocess.Popen(started, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        server.terminate()
    assert "http://127.0.0.1" in said or "in use" in said


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Page]]:
    """Open a page, in an empty folder, with a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMANENCE_STORE", str(tmp_path / "store"))
    pyplot.switch_backend("agg")
    yield Page
    pyplot.close("all")


@pytest.fixture(scope="session")
def pantry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages take for granted: runs, oracles, forget sets, lists."""
    place = tmp_path_factory.mktemp("pantry")
    here = Path.cwd()
    os.chdir(place)
    try:
        train = "remanence train --data digits --model mlp --epochs 4 --lr 0.1"
        for line in (
            f"{train} --record 6 --out run",
            "remanence select run --how hardest --size 100 --out hardest.json",
            "remanence select run --how hardest --size 60 --out hard.json",
            "remanence select run --how easiest --size 40 --out more.json",
            *(f"{train} --record 0 --without hardest.json --seed {i} --out oracle{i}" for i in (1, 2, 3)),
            "remanence unlearn run --forget hardest.json --method finetune --epochs 1 --out forgotten",
        ):
            run_line(shortened(line))
        ids = rm.open_run("run").data()[0].ids[:60].tolist()
    finally:
        os.chdir(here)
    (place / "requests.txt").write_text("".join(f"{each}\n" for each in ids[:30]))
    (place / "request.csv").write_text("id\n" + "".join(f"{each}\n" for each in ids[:30]))
    owners = "".join(f"{each},{'ann' if i % 3 else 'bob'}\n" for i, each in enumerate(ids))
    (place / "people.csv").write_text("id,user\n" + owners)
    patients = "".join(f"p{i},{i % 7},{i % 5},{'ill' if i % 3 else 'well'}\n" for i in range(80))
    (place / "patients.csv").write_text("id,age,dose,label\n" + patients)
    return place


@pytest.fixture
def take(pantry: Path, tmp_path: Path) -> Callable[..., None]:
    """Put some of it into the current folder."""

    def copy(*names: str) -> None:
        for name in names:
            source = pantry / name
            if source.is_dir():
                shutil.copytree(source, tmp_path / name)
            else:
                shutil.copy(source, tmp_path / name)

    return copy
