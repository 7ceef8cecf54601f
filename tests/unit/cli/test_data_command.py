import json
from pathlib import Path

import numpy as np
import pytest

import remanence as rm
from remanence.cli.main import run


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "list", "--data-dir", str(tmp_path)]) == 0
    assert "missing; get it from https://www.cs.toronto.edu" in capsys.readouterr().out
    assert run(["data", "list", "--data-dir", str(tmp_path), "--json"]) == 0
    found = {row["name"]: row["ready"] for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert found == {"digits": True, "fashion-mnist": False, "cifar10": False, "svhn": False}


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "check", "digits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["train"]["examples"] == 1297
    assert found["train"]["digest"] == rm.load_dataset("digits")[0].digest()
    assert sum(found["test"]["class_counts"].values()) == 500
    assert run(["data", "check", "digits"]) == 0
    text = capsys.readouterr().out
    assert "1,297" in text
    assert "1×8×8" in text


def test_check_refuses_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("x,label\n1,a\nbad,a\n")
    for source, words in (("cifar1", "Did you mean 'cifar10'"), (str(tmp_path / "t.csv"), "line 3")):
        assert run(["data", "check", source]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1


def test_another_checksum_is_one_line_and_no_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from scipy.io import savemat

    pixels = np.zeros((32, 32, 3, 2), dtype=np.uint8)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(tmp_path / name, {"X": pixels, "y": np.array([[10], [1]], dtype=np.uint8)})
    assert run(["data", "check", "svhn", "--data-dir", str(tmp_path), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "warning: svhn in" in captured.err
    assert json.loads(captured.out)["train"]["class_counts"]["0"] == 1
