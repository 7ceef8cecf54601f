"""What the fuzzer needs: a workshop of real files, a runner of commands with a time limit, and a count of the cases."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from remanence.cli.exit_codes import ExitCode
from remanence.cli.main import run

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
"""Time of each kind of case in the long run; 0 for the short one, which has a fixed number of cases."""
LIMIT = 20.0
"""Seconds that a case may take."""
CASES = Counter[str]()
_BATCH = 20 if SECONDS else 6


class Outcome:
    """Exit code and output of a command."""

    def __init__(self, code: int, output: str, hung: bool) -> None:
        self.code, self.output, self.hung = code, output, hung


def _call(arguments: list[str], *, limit: float = LIMIT) -> Outcome:
    """Run a command in this process; after the time limit it is interrupted."""
    output = io.StringIO()
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            code = run(arguments)
    except SystemExit as ending:
        code = int(ending.code or 0)
    except KeyboardInterrupt:
        code = 130
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    return Outcome(code, output.getvalue(), code == 130)


def _check_refusal(arguments: list[str], *, limit: float = LIMIT) -> Outcome:
    """Run a command that may be refused, but must not show a traceback or hang."""
    outcome = _call(arguments, limit=limit)
    if outcome.code == ExitCode.DEFECT:
        (log,) = re.findall(r"\S+\.log", outcome.output) or [""]
        pytest.fail(f"{arguments}: {Path(log).read_text()}", pytrace=False)
    assert outcome.code in (0, 1, 2, 130), (arguments, outcome.code, outcome.output)
    assert "Traceback" not in outcome.output, outcome.output
    return outcome


def _fuzz(
    kind: str, cases: st.SearchStrategy[Any], check: Callable[[Any], None], *, batches: int = 1
) -> None:
    """Check seeded cases: some batches of them, or as many as the long run has time for."""
    deadline = time.monotonic() + SECONDS
    for batch in itertools.count():
        if batch >= batches and time.monotonic() >= deadline:
            return

        @seed(batch)
        @settings(
            max_examples=_BATCH,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        )
        @given(cases)
        def check_one(case: Any) -> None:
            CASES[kind] += 1
            check(case)

        check_one()


@pytest.fixture(scope="session", autouse=True)
def count_of_cases() -> Iterator[None]:
    """Append the number of cases of each kind to a file, which `make fuzz` prints."""
    yield
    if "FUZZ_COUNTS" in os.environ:
        with Path(os.environ["FUZZ_COUNTS"]).open("a") as file:
            file.writelines(f"{count:>8} {kind}\n" for kind, count in sorted(CASES.items()))


@pytest.fixture(scope="session")
def call() -> Callable[..., Outcome]:
    return _call


@pytest.fixture(scope="session")
def check_refusal() -> Callable[..., Outcome]:
    return _check_refusal


@pytest.fixture(scope="session")
def fuzz() -> Callable[..., None]:
    return _fuzz


@pytest.fixture
def workshop(carried_out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a carried-out request and one file of every other kind; also the current folder."""
    place = shutil.copytree(carried_out, tmp_path / "workshop")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rng = np.random.default_rng(0)
    parts = {"train": 20, "test": 10}
    arrays = {f"x_{part}": rng.normal(size=(n, 5)).astype(np.float32) for part, n in parts.items()}
    arrays |= {f"y_{part}": rng.integers(2, size=n) for part, n in parts.items()}
    np.savez(place / "pack.npz", **arrays)
    np.savez(place / "problem.npz", X=arrays["x_train"], y=arrays["y_train"])
    (place / "states").mkdir()
    torch.save({"weight": torch.zeros(2, 2)}, place / "states" / "model-1.pt")
    choice = {"method": "finetune", "options": {"learning_rate": 0.1}, "balance": 1.0, "steps": 2}
    choice |= {"untouched": 2.0, "trials": 1, "run": "0", "forget": "some", "seed": 0}
    head = {"remanence": "tuned choice", "format": 1, "version": "0"}
    (place / "choice.json").write_text(json.dumps(head | choice))
    (place / "study.toml").write_text(
        'extends = "demo"\nseeds = 1\n[data]\nsource = "digits"\n[train]\nrecord = 3\n'
    )
    _call(["score", "run", "--out", "scores.csv"])
    assert (place / "scores.csv").exists()
    return place
