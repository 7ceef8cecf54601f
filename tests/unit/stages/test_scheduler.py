"""Stages on real worker processes."""

import errno
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from remanence.errors import RemanenceError, RunFolderError
from remanence.stages import Read, Stage, Store, compute_stages, run_stages
from remanence.stages.processes import Processes
from remanence.stages.timings import Timings, this_machine
from remanence.stages.worker import StageOutcome, attempt
from remanence.storage import Draft
from remanence.storage.folder import FORMAT


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Stage):
    kind = "add"

    value: int
    terms: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        terms = [read(stage).document("value")["value"] for stage in self.terms]
        draft.document("value", {"value": self.value + sum(terms)})


@dataclass(frozen=True, eq=False, kw_only=True)
class Bad(Stage):
    kind = "bad"

    after: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        raise RemanenceError("this stage cannot work")


@dataclass(frozen=True, eq=False, kw_only=True)
class FailsOnce(Stage):
    kind = "moody"

    mark: str

    def compute(self, draft: Draft, read: Read) -> None:
        mark = Path(self.mark)
        if not mark.exists():
            mark.touch()
            raise OSError(errno.EIO, "a cable was loose")
        draft.document("value", {"value": 1})


@dataclass(frozen=True, eq=False, kw_only=True)
class Full(Stage):
    kind = "full"

    after: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def chain(value: int) -> tuple[Stage, Stage, Stage]:
    one = Add(value=value)
    two = Add(value=10, terms=(one,))
    return one, two, Add(value=100, terms=(one, two))


class _Elsewhere:
    """An executor of one slot whose work is done on another machine, for all that the scheduler can tell."""

    slots, local = 1, False

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ended: list[tuple[Stage, StageOutcome]] = []

    def start(self, stage: Stage) -> None:
        self._ended.append((stage, replace(attempt(self._root, stage), machine="a machine of the cluster")))

    def wait(self, seconds: float) -> list[tuple[Stage, StageOutcome]]:
        ended, self._ended = self._ended, []
        return ended

    def close(self, *, abandon: bool) -> None:
        pass


def test_compute_once_then_reuse_and_redo_only_what_is_gone_or_broken(tmp_path: Path) -> None:
    store, (one, two, three) = Store(tmp_path), chain(1)
    tally = run_stages([three], store, workers=2)
    assert (tally.computed, tally.reused) == (3, 0)
    assert set(tally.seconds) == {"add"}
    assert store.get(three).document("value")["value"] == 112
    assert run_stages([three], store, workers=2).computed == 0
    (store.path(two) / "value.json").write_text("{}")
    redone: list[str] = []
    tally = run_stages([three], store, workers=2, on_done=lambda stage: redone.append(stage.key))
    assert redone == [two.key, three.key], "what was broken, and what depends on it, only"
    assert (tally.computed, tally.reused) == (2, 1)
    assert store.get(one).document("value")["value"] == 1


def test_an_artifact_made_from_other_inputs_is_made_again(tmp_path: Path) -> None:
    store, (one, two, three) = Store(tmp_path), chain(1)
    run_stages([three], store, workers=1)
    shutil.rmtree(store.path(one))
    forged = Add(value=7)
    forged.__dict__["key"] = one.key
    store.compute(forged)
    finished, todo = store.survey([three])
    assert [stage.key for stage in finished] == [one.key]
    assert [stage.key for stage in todo] == [two.key, three.key]


def test_a_failing_stage_says_why_and_keeps_what_was_done(tmp_path: Path) -> None:
    store, good = Store(tmp_path), Add(value=1)
    bad = Bad(after=(good,))
    after, aside = Add(value=2, terms=(bad,)), Add(value=3)
    tally = compute_stages([after, aside], store, Processes(store.root, 1))
    assert (tally.computed, tally.blocked) == (2, 1)
    assert [failure.stage.key for failure in tally.failures] == [bad.key]
    assert "RemanenceError: this stage cannot work" in Path(tally.failures[0].log).read_text()
    assert store.holds(good)
    assert store.holds(aside), "what does not depend on it goes on"
    with pytest.raises(RemanenceError, match="cannot work"):
        run_stages([after], store, workers=1)


def test_a_full_disk_ends_the_run_in_one_sentence(tmp_path: Path) -> None:
    store, good = Store(tmp_path), Add(value=1)
    full = Full(after=good)
    with pytest.raises(RemanenceError, match=r"No space left.*Finished work is kept"):
        run_stages([full], store, workers=1)
    assert store.holds(good)


def test_a_log_on_a_full_disk_ends_the_run_in_the_same_sentence(tmp_path: Path) -> None:
    """/dev/full takes nothing; the traceback is flushed when the log is closed."""
    store, stage = Store(tmp_path), Bad()
    store.log(stage).parent.mkdir()
    store.log(stage).symlink_to("/dev/full")
    with pytest.raises(
        RemanenceError, match=r"No space left on device.*free some disk space and run it again"
    ):
        run_stages([stage], store, workers=1)


def test_a_place_without_room_for_logs_is_an_outcome(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder of logs should be")
    outcome = attempt(tmp_path, chain(1)[0])
    assert (outcome.ending, "File exists" in outcome.message) == ("broken", True)


def test_a_passing_fault_is_tried_again(tmp_path: Path) -> None:
    stage = FailsOnce(mark=str(tmp_path / "mark"))
    store = Store(tmp_path / "store")
    tally = run_stages([stage], store, workers=1)
    assert (tally.computed, tally.failures) == (1, ())
    assert not store.log(stage).exists()


def test_a_store_is_ours_or_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunFolderError, match="not empty and not a store"):
        Store(tmp_path).claim()
    ours = Store(tmp_path / "store")
    ours.claim()
    ours.claim()
    (ours.root / "remanence-store.json").write_text('{"layout": 99}')
    with pytest.raises(RunFolderError, match="layout 99"):
        ours.claim()


def test_an_artifact_from_the_future_is_refused_and_kept(tmp_path: Path) -> None:
    store, one = Store(tmp_path), chain(1)[0]
    store.compute(one)
    seal = store.path(one) / "remanence.json"
    seal.write_text(seal.read_text().replace(f'"format": {FORMAT}', '"format": 99'))
    with pytest.raises(RunFolderError, match="Upgrade"):
        store.holds(one)
    assert seal.exists()


def test_the_timings_survive_a_line_cut_short(tmp_path: Path) -> None:
    timings, (one, two, _) = Timings(tmp_path), chain(1)
    timings.add(one, 1.5)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write('{"key": "add-1\n')
    timings.add(two, 2.5)
    assert {key: timing.seconds for key, timing in timings.read().items()} == {one.key: 1.5, two.key: 2.5}
    assert list(timings.read([two])) == [two.key]


def test_the_timings_say_where_a_stage_was_computed(tmp_path: Path) -> None:
    store, timings, (one, two, _) = Store(tmp_path), Timings(tmp_path), chain(1)
    compute_stages([one], store, _Elsewhere(tmp_path))
    timings.add(two, 1.0)
    assert timings.read()[one.key].machine == "a machine of the cluster"
    assert timings.read()[two.key].machine == this_machine() == attempt(tmp_path, two).machine


def test_an_artifact_says_what_it_was_made_from(tmp_path: Path) -> None:
    """config.toml names the parameters and, by the name of the field, the digest of every input."""
    store, (one, two, three) = Store(tmp_path), chain(1)
    run_stages([three], store, workers=1)
    config = store.get(three).config()
    assert config["params"] == {"value": 100}
    assert config["needs"] == [one.key, two.key]
    assert config["inputs"] == {"terms": [store.get(one).digest(), store.get(two).digest()]}
