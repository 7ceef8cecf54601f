"""Studies as a person runs them: real worker processes, digits, very short training."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from remanence.cli import console, main
from remanence.stages import Read, Stage, Store, in_order
from remanence.storage import Draft, create
from remanence.study.catalog import load_study
from remanence.study.running import plan

TINY = [
    "seeds=1",
    "train.epochs=1",
    "train.record=1",
    "train.placement=even",
    "model.width=4",
    "unlearn.epochs=1",
    "tune.learning_rates=[0.1]",
    "tune.epochs=1",
    "audit.oracles=1",
    'audit.metrics=["ua", "mia_confidence"]',
    "forget.sizes=[0.05]",
]
STUDY = ["time-to-unlearn", "--preset", "smoke", *(part for change in TINY for part in ("--set", change))]


@dataclass(frozen=True, eq=False, kw_only=True)
class OldTrain(Stage):
    """What a training run was called before its meaning changed."""

    kind = "train"
    version = 0

    def compute(self, draft: Draft, read: Read) -> None:
        draft.document("value", {})


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Done:
    """The command in this process (its workers are processes of their own)."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(console, "out", Console(file=out, highlight=False, width=200))
        patch.setattr(console, "err", Console(file=err, highlight=False, width=200))
        try:
            code = main.run(["study", *map(str, arguments)])
        except SystemExit as left:
            code = int(left.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def counts(done: Done) -> tuple[int, int, int]:
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return document["computed"], document["reused"], document["failed"]


def stages() -> list[str]:
    return [stage.key for stage in in_order([plan(load_study("time-to-unlearn", "smoke", TINY)).goal])]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study") / "store"
    done = run("run", *STUDY, "--store", root, "--json")
    assert counts(done) == (len(stages()), 0, 0)
    assert done.stderr == "", "quiet when piped"
    return root


def test_a_second_run_computes_nothing(store: Path) -> None:
    assert counts(run("run", *STUDY, "--store", store, "--json")) == (0, len(stages()), 0)


def test_what_older_code_left_is_told_and_not_used(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(store, root)
    Store(root).compute(OldTrain())
    done = run("run", *STUDY, "--store", root, "--json")
    assert counts(done) == (0, len(stages()), 0)
    assert "1 artifact in the store is of older code and not used" in done.stderr
    assert run("clean", "--store", root).stdout.endswith("1 artifacts and logs removed\n")


def _version(artifact: Path) -> tuple[int, int]:
    """A new folder may get the inode of the one that it replaces; then its time tells them apart."""
    status = artifact.stat()
    return status.st_ino, status.st_mtime_ns


def test_a_deleted_artifact_and_what_depends_on_it_only_are_computed_again(
    store: Path, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(store, root)
    goal = plan(load_study("time-to-unlearn", "smoke", TINY)).goal
    everything = in_order([goal])
    gone = next(stage for stage in everything if stage.kind == "tune")
    shutil.rmtree(Store(root).path(gone))
    stale = {gone.key}
    for stage in everything:
        if any(need.key in stale for need in stage.needs):
            stale.add(stage.key)
    before = {path.name: _version(path) for path in Store(root).artifacts()}
    assert counts(run("run", *STUDY, "--store", root, "--json")) == (
        len(stale),
        len(everything) - len(stale),
        0,
    )
    after = {path.name: _version(path) for path in Store(root).artifacts()}
    assert {name for name in after if before.get(name) != after[name]} == stale
    same = run("diff", *STUDY, "--store", store, "--other", root)
    assert same.stdout == f"{len(everything)} artifacts bit-identical\n"


@pytest.mark.journey
def test_kills_at_random_moments_end_in_the_same_bits(
    store: Path, tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    root, rng = tmp_path / "store", random.Random(1)
    command = [sys.executable, "-m", "remanence", "study", "run", *STUDY, "--store", str(root)]
    for _ in range(2):
        before = len(Store(root).artifacts())
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as started:
            wait_until(lambda done=before: len(Store(root).artifacts()) > done, started)
            time.sleep(rng.uniform(0, 0.3))
            os.kill(started.pid, signal.SIGKILL)
        assert len(Store(root).artifacts()) < len(stages()), "the kill must meet unfinished work"
    assert counts(run("run", *STUDY, "--store", root, "--json"))[0] >= 1
    compared = json.loads(run("diff", *STUDY, "--store", store, "--other", root, "--json").stdout)
    assert compared == {"identical": True, "same": len(stages()), "different": [], "missing": []}


def test_show_status_and_export(store: Path, tmp_path: Path) -> None:
    shown = run("show", *STUDY, "--store", store)
    assert shown.returncode == 0
    assert "verdict" in shown.stdout
    status = json.loads(run("status", *STUDY, "--store", store, "--json").stdout)
    assert (status["studies"][0]["done"], status["studies"][0]["missing"]) == (len(stages()), 0)
    assert run("export", *STUDY, "--store", store, "--out", tmp_path).returncode == 0
    page = (tmp_path / "time-to-unlearn-smoke.md").read_text()
    for word in ("verdict", "times.png", "--set seeds=1", "cores", 'name = "small_conv"'):
        assert word in page
    written = {path.name for path in (tmp_path / "time-to-unlearn-smoke").iterdir()}
    assert {"times.png", "times.svg", "times.pdf", "epochs-to-unlearn.tex", "results.csv"} <= written
    assert {"measurements.csv", "measurements.parquet"} <= written


def test_a_dry_run_tells_the_cost_and_touches_nothing(tmp_path: Path) -> None:
    done = run("run", *STUDY, "--store", tmp_path / "store", "--dry-run", "--json")
    document = json.loads(done.stdout)
    assert document["to_compute"] == len(stages())
    assert 0 < document["wall_seconds"] <= document["core_seconds"]
    assert not (tmp_path / "store").exists()
    told = run("run", *STUDY, "--store", tmp_path / "store", "--dry-run")
    assert "oracle" in told.stdout
    assert "workers" in told.stdout


def test_list_names_them_all() -> None:
    listed = json.loads(run("list", "--json").stdout)["studies"]
    assert {"time-to-unlearn", "proxies", "hardest", "group-loss", "curves", "l1-sparse", "svhn"} <= {
        study["name"] for study in listed
    }


def test_clean_keeps_what_others_share(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(store, root)
    assert run("run", "curves", *STUDY[1:], "--store", root).returncode == 0
    before = len(Store(root).artifacts())
    assert run("clean", "curves", *STUDY[1:], "--store", root, "--dry-run").returncode == 0
    assert len(Store(root).artifacts()) == before
    assert run("clean", "curves", *STUDY[1:], "--store", root).returncode == 0
    assert len(Store(root).artifacts()) == before - 1, "the curves' own figure only"
    assert counts(run("run", *STUDY, "--store", root, "--json"))[0] == 0


def test_clean_with_a_change_keeps_what_the_study_needs_without(tmp_path: Path) -> None:
    """Artifacts are made up: whether they go is a matter of their names."""
    store, change = Store(tmp_path / "store"), "audit.tolerance=0.1"
    store.claim()
    forms = [in_order([plan(load_study("l1-sparse", "smoke", changes)).goal]) for changes in ([], [change])]
    for stage in {stage.key: stage for form in forms for stage in form}.values():
        with create(store.path(stage), stage.kind) as draft:
            draft.document("value", {})
    own = {stage.key for stage in forms[1]} - {stage.key for stage in forms[0]}
    done = run("clean", "l1-sparse", "--preset", "smoke", "--set", change, "--store", store.root)
    assert done.returncode == 0
    assert {path.name for path in store.artifacts()} == {stage.key for stage in forms[0]}
    assert len(own) == 1, "its own figure"


def test_a_failed_stage_is_reported_with_its_log_and_the_rest_goes_on(store: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(store, root)
    done = run("run", *STUDY, "--set", "tune.learning_rates=[1e12]", "--store", root, "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["failed"] == 1
    assert document["blocked"] > 0
    assert "diverged" in done.stderr
    assert Path(document["failures"][0]["log"]).exists()


def test_a_failure_in_one_study_leaves_the_pages_of_the_others(store: Path, tmp_path: Path) -> None:
    root, out = tmp_path / "store", tmp_path / "out"
    shutil.copytree(store, root)
    changes = ["--set", "tune.learning_rates=[1e12]", "--store", root, "--out", out]
    done = run("run", "proxies", *STUDY, *changes, "--json")
    assert done.returncode == 1
    assert (out / "proxies-smoke.md").exists()
    assert not (out / "time-to-unlearn-smoke.md").exists()
    assert "time-to-unlearn is not finished; no page was written for it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "time-to-unlern"], "Did you mean 'time-to-unlearn'?"),
        (["run", "proxies", "--preset", "smok"], "Did you mean 'smoke'?"),
        (["run", "proxies", "--preset", "smoke", "--workers", "0"], "--workers must be at least 1; got 0."),
        (
            ["run", "proxies", "--preset", "smoke", "--workers", "0", "--dry-run"],
            "--workers must be at least 1; got 0.",
        ),
        (
            ["run", "proxies", "--preset", "smoke", "--address", "head:6379"],
            "--address needs the executor `ray`; got the executor `process`",
        ),
        (["run", "proxies", "--preset", "smoke", "--store", __file__], "is a file"),
        (["run", "proxies", "--data-dir", "/nowhere"], "it is in neither"),
        (["show", "proxies", "--preset", "smoke", "--store", "/nowhere"], "has not been computed"),
        (["export", "proxies"], "Expected at least one of --out, --tensorboard and --mlflow; got none."),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_2(arguments: list[str], sentence: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
