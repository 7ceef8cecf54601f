"""`remanence doctor`: what it finds, and what to do about it."""

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from remanence import doctor
from remanence.cli.main import run
from remanence.machine import Capability, MachineReport

FINE = Capability("cpu", works=True)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose matrix products work, without the wait for the probes."""
    half = tuple(
        Capability(f"{dtype} {task}", True)
        for dtype in ("bfloat16", "float16")
        for task in ("matmul", "conv")
    )
    report = MachineReport("key", half, (FINE,))
    monkeypatch.delenv("REMANENCE_PRETEND_NO_HALF", raising=False)
    monkeypatch.setattr("remanence.machine.check_machine", lambda: report)
    monkeypatch.setattr("remanence.machine.half.check_machine", lambda: report)


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[tuple[str, str], dict[str, object]]:
    assert run(["doctor", "--json", *arguments]) == 0
    return {(each["topic"], each["name"]): each for each in json.loads(capsys.readouterr().out)["findings"]}


def test_everything_that_was_promised_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    assert found["version", "torch"]["value"] == torch.__version__
    assert found["device", "cpu"] == {
        "topic": "device",
        "name": "cpu",
        "value": "works",
        "ok": True,
        "advice": "",
    }
    assert {name for topic, name in found if topic == "half precision"} == {
        "bfloat16 matmul",
        "bfloat16 conv",
        "float16 matmul",
        "float16 conv",
    }
    assert {"parquet", "ray", "web", "lightning", "transformers", "tensorboard", "mlflow"} <= {
        name for topic, name in found if topic == "extra"
    }
    assert ("threads", "usable") in found
    for finding in found.values():
        assert finding["ok"] or finding["advice"], "what is wrong comes with what to do"


def test_half_precision_that_fails_says_why_and_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMANENCE_PRETEND_NO_HALF", "1")
    finding = findings(capsys)["half precision", "bfloat16 conv"]
    assert finding["value"] == "does not work: REMANENCE_PRETEND_NO_HALF is set"
    assert "Use float32" in str(finding["advice"])
    assert run(["doctor"]) == 0
    assert "✗ bfloat16 conv    does not work: REMANENCE_PRETEND_NO_HALF is set" in capsys.readouterr().out


def test_a_missing_data_folder_and_a_full_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 5, 5))
    found = findings(capsys, "--data-dir", str(tmp_path / "none"))
    assert found["data", "folder"]["value"] == f"{tmp_path / 'none'} is missing"
    assert not found["data", "cifar10"]["ok"]
    assert str(tmp_path / "none") in str(found["data", "cifar10"]["advice"])
    assert "Make room" in str(found["disk space", "here"]["advice"])


def test_an_extra_that_is_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda package: package != "ray")
    found = findings(capsys)
    assert found["extra", "ray"]["advice"] == "pip install 'remanence[ray]'"
    assert found["extra", "web"]["value"] == "installed"
    assert run(["doctor"]) == 0
    assert "pip install 'remanence[ray]'" in capsys.readouterr().out


def test_a_cpu_that_cannot_multiply_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = MachineReport("key", (), (Capability("cpu", works=False, reason="the result is wrong"),))
    monkeypatch.setattr("remanence.machine.check_machine", lambda: broken)
    with pytest.raises(SystemExit) as left:
        run(["doctor"])
    assert left.value.code == 1
    assert "✗ cpu              does not work: the result is wrong" in capsys.readouterr().out
