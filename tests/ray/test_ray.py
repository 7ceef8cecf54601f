"""Stages on Ray: the same bits as on processes, also on two nodes of which one is killed.

`make test-ray` installs Ray (257 MB) and runs this.
"""

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remanence.cli.main import run as command
from remanence.errors import InputError
from remanence.experiments import TuneSettings, train_shadows, tune
from remanence.requests import Calibration, CalibrationSettings, calibrate
from remanence.stages import Read, Stage, Store, compute_stages, in_order, run_stages
from remanence.stages.executors import make_executor
from remanence.stages.ray_cluster import RayCluster
from remanence.stages.worker import StageOutcome
from remanence.storage import Draft
from remanence.study.catalog import load_study
from remanence.study.running import plan
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet

ray: Any = pytest.importorskip("ray", reason="Ray is not installed; `make test-ray` installs it.")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _code_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's workers are new interpreters; they must find this code and this file."""
    here = Path(__file__).parent
    paths = [str(here.parents[1] / "src"), str(here), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@dataclass(frozen=True, eq=False, kw_only=True)
class DiesOnce(Stage):
    kind = "mortal"

    mark: str

    def compute(self, draft: Draft, read: Read) -> None:
        mark = Path(self.mark)
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        draft.document("value", {"value": 1})


def test_a_study_has_the_same_bits_on_ray(tmp_path: Path, tiny: list[str]) -> None:
    goal = plan(load_study("time-to-unlearn", "smoke", tiny)).goal
    ours, theirs = Store(tmp_path / "process"), Store(tmp_path / "ray")
    run_stages([goal], ours, workers=2)
    tally = compute_stages([goal], theirs, make_executor("ray", theirs.root, workers=2))
    assert (tally.computed, tally.failures) == (len(in_order([goal])), ())
    for stage in in_order([goal]):
        assert theirs.get(stage).digest() == ours.get(stage).digest(), stage.key


def test_a_killed_ray_worker_is_tried_again(tmp_path: Path) -> None:
    stage = DiesOnce(mark=str(tmp_path / "mark"))
    store = Store(tmp_path / "store")
    tally = compute_stages([stage], store, make_executor("ray", store.root, workers=1))
    assert (tally.computed, tally.failures) == (1, ())
    assert store.get(stage).document("value")["value"] == 1


def test_an_address_where_nobody_is_takes_one_sentence(tmp_path: Path) -> None:
    stage = DiesOnce(mark=str(tmp_path / "mark"))
    executor = make_executor("ray", tmp_path, workers=1, address="127.0.0.1:9")
    with pytest.raises(InputError, match="cannot be reached") as caught:
        compute_stages([stage], Store(tmp_path), executor)
    assert "\n" not in str(caught.value)


class Rude(BaseException):
    """No `Exception`: the worker does not make an outcome of it, so the task itself ends with it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RudeStage(Stage):
    kind = "rude"

    def compute(self, draft: Draft, read: Read) -> None:
        raise Rude("go away")


def test_what_a_task_raises_is_its_failure_and_not_a_lost_worker(tmp_path: Path) -> None:
    stage = RudeStage()
    store = Store(tmp_path / "store")
    tally = compute_stages([stage], store, make_executor("ray", store.root, workers=1))
    assert [failure.message for failure in tally.failures] == ["Rude: go away"]


def test_a_cluster_that_is_up_is_not_joined_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    stage = DiesOnce(mark=str(tmp_path))
    store = Store(tmp_path / "store")
    assert compute_stages([stage], store, make_executor("ray", store.root, workers=1)).computed == 1


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """A cluster of two raylets on this machine; the second one, with two of three cores, can be killed."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    try:
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def signal_workers(node: Any, number: signal.Signals) -> None:
    """Send a signal to every worker process of a node."""
    raylets = {process.process.pid for process in node.all_processes["raylet"]}
    parents = {
        int(path.parent.name): int(path.read_text().rpartition(")")[2].split()[1])
        for path in Path("/proc").glob("[0-9]*/stat")
    }
    for worker, parent in parents.items():
        if parent in raylets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, number)


def lose_power(cluster: Any, node: Any) -> None:
    """Kill a node with all its workers at once: a worker that outlives its raylet for a second could still finish."""
    signal_workers(node, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each attempt at a stage on Ray ended."""
    kept: list[str] = []
    original = RayCluster._outcome

    def watched(self: RayCluster, reference: Any) -> StageOutcome:
        outcome = original(self, reference)
        kept.append(outcome.ending)
        return outcome

    monkeypatch.setattr(RayCluster, "_outcome", watched)
    return kept


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ray") / "run"
    recipe = Recipe(epochs=2, learning_rate=0.2)
    options = {"hidden": (8,)}
    train_run(RunSettings("digits", "mlp", recipe, record=2, model_options=options), out)
    return out


def copy(trained: Path, out: Path) -> Run:
    """A copy of a run, in which a calibration can be made."""
    return open_run(shutil.copytree(trained, out))


def without_times(calibration: Calibration) -> list[dict[str, Any]]:
    trials = [asdict(trial) for trial in calibration.trials]
    for trial in trials:
        trial.pop("seconds_per_step")
    return trials


def test_a_calibration_on_two_nodes_of_which_one_is_killed(
    trained: Path, tmp_path: Path, two_nodes: Any, endings: list[str]
) -> None:
    """All reference models and trials are computed, and are those of processes bit for bit."""
    cluster, second = two_nodes
    settings = CalibrationSettings(method="finetune", sets=20, models=20, budget=4)
    expected = calibrate(copy(trained, tmp_path / "process"), settings, workers=2)
    done: list[Stage] = []

    def on_done(stage: Stage) -> None:
        done.append(stage)
        if len(done) == 8:  # what the second node has from now on stays unfinished until the node dies
            signal_workers(second, signal.SIGSTOP)
        if len(done) == 12:
            lose_power(cluster, second)

    found = calibrate(
        copy(trained, tmp_path / "ray"),
        settings,
        workers=3,
        executor="ray",
        address=cluster.address,
        on_done=on_done,
    )
    assert len(done) == 40
    assert "killed" in endings, "stages were computed on the node that died"
    assert set(endings) == {"done", "killed"}
    for name in ("ids", "labels", "left_out", "log_odds", "calls"):
        assert np.array_equal(getattr(found.pool, name), getattr(expected.pool, name)), name
    assert without_times(found) == without_times(expected)


def test_tuning_with_its_oracles_is_the_same_on_two_nodes(
    trained: Path, tmp_path: Path, two_nodes: Any
) -> None:
    cluster, _ = two_nodes
    settings = TuneSettings("finetune", {"epochs": 1}, trials=2, oracles=2, size=20, workers=2)
    run = open_run(trained)
    expected = tune(run, settings, tmp_path / "process")
    found = tune(run, settings, tmp_path / "ray", executor="ray", address=cluster.address)
    assert (found.choice, found.tried, found.oracle) == (expected.choice, expected.tried, expected.oracle)
    assert not ray.is_initialized()


def test_shadow_models_are_the_same_on_ray(trained: Path, tmp_path: Path) -> None:
    run = open_run(trained)
    forget_set = ForgetSet("some", run.data()[0].ids[:20])
    tables = [
        train_shadows([run], forget_set, shadows=6, cache=tmp_path / name, workers=2, executor=name)
        for name in ("process", "ray")
    ]
    one, other = (asdict(table) for table in tables)
    for name, values in one.items():
        assert np.array_equal(np.asarray(values), np.asarray(other[name])), name


def test_the_commands_have_the_executor(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before anything is computed: the address needs the executor, and nobody is at this address."""
    copied = str(copy(trained, tmp_path / "run").folder.path)
    (tmp_path / "ids.txt").write_text("0\n1\n3\n")
    choice = ["--how", "ids", "--ids", str(tmp_path / "ids.txt"), "--out", str(tmp_path / "set.json")]
    assert command(["select", copied, *choice]) == 0
    lines = (
        ["calibrate", copied, "--models", "20", "--sets", "20"],
        ["tune", copied, "--method", "finetune", "--out", str(tmp_path / "tuning")],
        ["audit", copied, "--forget", str(tmp_path / "set.json"), "--shadows", "6", "--cache", str(tmp_path)],
    )
    for line in lines:
        for options, words in (
            (["--address", "127.0.0.1:9"], "needs the executor"),
            (["--executor", "ray", "--address", "127.0.0.1:9", "--workers", "1"], "cannot be reached"),
        ):
            capsys.readouterr()
            resume = ["--resume"] if line[0] == "tune" else []
            assert command([*line, *resume, *options]) == 2, line
            assert words in capsys.readouterr().err


def test_a_cluster_that_the_caller_has_joined_stays_joined(tmp_path: Path) -> None:
    ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR")
    try:
        stage = DiesOnce(mark=str(tmp_path))
        store = Store(tmp_path / "store")
        assert run_stages([stage], store, workers=1, executor="ray").computed == 1
        assert ray.is_initialized()
    finally:
        ray.shutdown()
