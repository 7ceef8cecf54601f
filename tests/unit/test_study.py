"""Stages on real worker processes."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from remanence.errors import RemanenceError
from remanence.storage import Draft, Folder
from remanence.study import Stage, StageKind, Store, in_order, run_stages


def _add(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    draft.document(
        "value", {"value": params["value"] + sum(each.document("value")["value"] for each in inputs)}
    )


def _die_once(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    mark = Path(params["mark"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    draft.document("value", {"value": 1})


def _fail(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    raise RemanenceError("this stage cannot work")


def _slow(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    time.sleep(0.15)
    _add(draft, params, inputs)


ADD = StageKind("add", 1, _add)
SLOW = StageKind("slow", 1, _slow)


def chain(value: int) -> tuple[Stage, Stage, Stage]:
    one = Stage(ADD, {"value": value})
    two = Stage(ADD, {"value": 10}, (one,))
    return one, two, Stage(ADD, {"value": 100}, (one, two))


def slow_graph() -> list[Stage]:
    first = [Stage(SLOW, {"value": i}) for i in range(6)]
    return [*first, Stage(SLOW, {"value": 100}, tuple(first))]


def test_the_key_is_the_question() -> None:
    assert chain(1)[2].key == chain(1)[2].key
    assert chain(1)[2].key != chain(2)[2].key, "a changed input must change what depends on it"
    assert Stage(StageKind("add", 2, _add), {"value": 1}).key != Stage(ADD, {"value": 1}).key
    assert [stage.key for stage in in_order([chain(1)[2]])] == [stage.key for stage in chain(1)]


def test_compute_once_then_reuse_and_redo_only_what_is_gone_or_broken(tmp_path: Path) -> None:
    store, (one, two, three) = Store(tmp_path), chain(1)
    tally = run_stages([three], store, workers=2)
    assert (tally.computed, tally.reused) == (3, 0)
    assert set(tally.seconds) == {"add"}
    assert store.get(three).document("value")["value"] == 112
    assert run_stages([three], store, workers=2).computed == 0
    (store.path(two) / "value.json").write_text("{}")
    redone: list[str] = []
    run_stages([three], store, workers=2, on_done=lambda stage: redone.append(stage.key))
    assert redone == [two.key]
    assert store.get(one).document("value")["value"] == 1


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    stage = Stage(StageKind("mortal", 1, _die_once), {"mark": str(tmp_path / "mark")})
    store = Store(tmp_path / "store")
    run_stages([stage], store, workers=1)
    assert store.get(stage).document("value")["value"] == 1
    assert store.sweep() == 0, "what the killed worker left must have been swept"


def test_a_failing_stage_says_why_and_keeps_what_was_done(tmp_path: Path) -> None:
    store, good = Store(tmp_path), Stage(ADD, {"value": 1})
    with pytest.raises(RemanenceError, match="cannot work"):
        run_stages([Stage(StageKind("bad", 1, _fail), {}, (good,))], store, workers=1)
    assert store.holds(good)


def test_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    """SIGKILL the whole run again and again; the artifacts are those of an undisturbed one."""
    quiet = Store(tmp_path / "quiet")
    run_stages(slow_graph(), quiet, workers=2)
    code = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_study as here
        from remanence.study import Store, run_stages
        if __name__ == "__main__":
            run_stages(here.slow_graph(), Store(Path({str(tmp_path / "noisy")!r})), workers=2)
    """)
    script = tmp_path / "run.py"
    script.write_text(code)
    rng = random.Random(0)
    for _ in range(4):
        with subprocess.Popen([sys.executable, str(script)], start_new_session=True) as run:
            time.sleep(rng.uniform(2.0, 6.0))
            run.kill()
    time.sleep(1.5)  # orphaned workers notice within half a second
    noisy = Store(tmp_path / "noisy")
    noisy.sweep()
    run_stages(slow_graph(), noisy, workers=2)
    for stage in in_order(slow_graph()):
        assert noisy.get(stage).digest() == quiet.get(stage).digest()
