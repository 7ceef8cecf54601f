import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import remanence as rm
from remanence.storage import create, open_folder, read_trace, write_trace
from remanence.storage.lock import acquire, is_held


def filled(path: Path) -> Path:
    with create(path, "training") as draft:
        draft.config({"seed": 3, "nothing": None, "recipe": {"lr": 0.1, "absent": None}})
        draft.tensors("weights", {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T})
        draft.rows("measurements", [{"metric": "ua", "value": 0.5}, {"metric": "ra", "value": 1.0}])
        draft.document("facts", {"a": 1})
    return path


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    folder = open_folder(filled(tmp_path / "run"), "training")
    assert folder.config() == {"seed": 3, "recipe": {"lr": 0.1}}
    assert np.array_equal(folder.tensors("weights")["w"], np.arange(6).reshape(2, 3).T)
    assert [row["metric"] for row in folder.rows("measurements")] == ["ua", "ra"]
    assert folder.document("facts") == {"a": 1}
    folder.verify()


def test_the_digest_depends_on_content_alone(tmp_path: Path) -> None:
    assert open_folder(filled(tmp_path / "a")).digest() == open_folder(str(filled(tmp_path / "b"))).digest()


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), create(tmp_path / "run", "training") as draft:
        draft.document("facts", {})
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(tmp_path: Path) -> None:
    filled(tmp_path / "run")
    with pytest.raises(rm.errors.RunFolderError, match="left as it is"):
        filled(tmp_path / "run")
    open_folder(tmp_path / "run").verify()


@pytest.mark.parametrize("name", ["weights.safetensors", "measurements.jsonl", "config.toml", "facts.json"])
def test_one_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    path = filled(tmp_path / "run") / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(rm.errors.RunFolderError, match="damaged"):
        open_folder(tmp_path / "run").verify()


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    (filled(tmp_path / "run") / "facts.json").unlink()
    with pytest.raises(rm.errors.RunFolderError, match="missing"):
        open_folder(tmp_path / "run").verify()


def test_foreign_folders_are_refused_with_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(rm.errors.RunFolderError, match="not a folder made by Remanence"):
        open_folder(tmp_path)
    with pytest.raises(rm.errors.RunFolderError, match="not a folder made by Remanence"):
        open_folder(tmp_path / "absent")
    filled(tmp_path / "run")
    with pytest.raises(rm.errors.RunFolderError, match="holds a training; a study is needed"):
        open_folder(tmp_path / "run", "study")


def test_a_folder_of_a_later_version_says_so(tmp_path: Path) -> None:
    seal = filled(tmp_path / "run") / "remanence.json"
    seal.write_text(json.dumps(json.loads(seal.read_text()) | {"format": 99, "version": "9.0"}))
    with pytest.raises(rm.errors.RunFolderError, match=r"made by Remanence 9\.0 in format 99.*Upgrade"):
        open_folder(tmp_path / "run")
    seal.write_text("{")
    with pytest.raises(rm.errors.RunFolderError, match="damaged"):
        open_folder(tmp_path / "run")


@pytest.mark.parametrize("ids", [np.array([5, 7]), np.array(["anna", "bert"])])
def test_a_trace_survives_the_disk(tmp_path: Path, ids: np.ndarray) -> None:
    mechanism = rm.Mechanism(
        sigma=0.1, sampling_rate=0.1, steps=10, batch_size=32, max_norm=2.0, clipped=True
    )
    norms = np.array([[1.0, 2.0], [3.0, 4e-20]])
    trace = rm.Trace(ids, np.array([0, 10]), norms, mechanism, confidence=norms / 9, provenance={"seed": "1"})
    with create(tmp_path / "run", "training") as draft:
        write_trace(draft, trace)
    back = read_trace(open_folder(tmp_path / "run"))
    assert back.mechanism == mechanism
    assert back.error is None
    assert dict(back.provenance) == {"seed": "1"}
    for name in ("ids", "steps", "norms", "confidence"):
        assert np.array_equal(getattr(back, name), getattr(trace, name))


def test_a_lock_lives_as_long_as_the_process_it_was_passed_to(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    handle = acquire(path, "held")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[handle])
    os.close(handle)
    assert is_held(path)
    with pytest.raises(rm.errors.RunFolderError, match="held"):
        acquire(path, "held")
    child.communicate()  # its input ends, and so does it
    assert not is_held(path)
    os.close(acquire(path, "held"))
