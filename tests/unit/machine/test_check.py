"""What plain torch can do here: probed in a process that may crash or hang, and kept."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

import remanence as rm
from remanence.data import digits
from remanence.machine import (
    MachineReport,
    cannot_run,
    check,
    check_machine,
    probes,
    require_half,
    usable_threads,
)
from remanence.training import Recipe, train_steps

ALL = (*probes.HALF_PROBES, *probes.DEVICE_PROBES)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a process that remembers nothing; where the report will be."""
    monkeypatch.delenv("REMANENCE_PRETEND_NO_HALF", raising=False)
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    check_machine.cache_clear()
    yield tmp_path / "machine" / f"{check.machine_key()}.json"
    check_machine.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Probes that all work and take no time; the names that each process of them was started with."""
    started: list[Sequence[str]] = []

    def run(names: Sequence[str]) -> tuple[str, str]:
        started.append(list(names))
        return "".join(f"{name}\t\n" for name in names), "the process ended with exit code 0"

    monkeypatch.setattr(check, "run_probes", run)
    return started


def test_the_real_probes_agree_with_this_process() -> None:
    """Each in its own process, as in use; this very CPU must at least multiply in float32."""
    printed, ending = check.run_probes(["cpu", "cuda"])
    assert ending == "the process ended with exit code 0"
    there = "" if torch.cuda.is_available() else "absent"
    assert printed == f"cpu\t\ncuda\t{there}\n"


def test_a_wrong_result_counts_as_not_working(monkeypatch: pytest.MonkeyPatch) -> None:
    right = probes.F.linear
    wrong = lambda x, weight: right(x, weight) * (1 + torch.is_autocast_enabled("cpu"))  # noqa: E731
    monkeypatch.setattr(probes.F, "linear", wrong)
    assert not probes.matmul_works(torch.bfloat16)


def _script(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "probes.py"
    file.write_text(
        f"import os, signal, sys, time\nfor name in sys.argv[1:]:\n    {body}\n    print(name + '\\t', flush=True)\n"
    )
    monkeypatch.setattr(probes, "__file__", str(file))


def test_a_crash_costs_the_probe_that_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "name == 'bfloat16 conv' and os.kill(os.getpid(), signal.SIGILL)"
    _script(tmp_path, crash, monkeypatch)
    report = check.probe_machine("key")
    broken = [capability for capability in (*report.half, *report.devices) if not capability.works]
    assert [(each.name, each.reason) for each in broken] == [
        ("bfloat16 conv", "the process was killed by SIGILL")
    ]


def test_a_hang_counts_as_not_working_after_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path, "name == 'float16 matmul' and time.sleep(600)", monkeypatch)
    report = check.probe_machine("key", lambda names: check.run_probes(names, time_limit=1.5))
    assert [(each.works, each.reason) for each in report.half] == [
        (True, ""),
        (True, ""),
        (False, "no result within 1.5 seconds"),
        (True, ""),
    ]


def test_a_script_that_cannot_start_says_so_of_every_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path, "sys.exit(3)", monkeypatch)
    report = check.probe_machine("key")
    assert {each.reason for each in (*report.half, *report.devices)} == {"the process ended with exit code 3"}


def test_devices_that_are_not_here_are_left_out() -> None:
    answers = {name: "absent" if name in ("cuda", "mps", "xpu") else "" for name in ALL}
    report = check.probe_machine("key", lambda names: ("".join(f"{n}\t{answers[n]}\n" for n in names), ""))
    assert [(device.name, device.works) for device in report.devices] == [("cpu", True)]


def test_it_is_found_out_once(fresh: Path, asked: list[Sequence[str]]) -> None:
    first = check_machine()
    check_machine.cache_clear()  # another process
    assert check_machine() == first
    assert asked == [list(ALL)]
    assert isinstance(first, MachineReport)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 1, "key": "KEY", "half": [], "devices": []}',
        '{"format": 1, "key": "KEY", "half": [{"nam": 1}], "devices": []}',
        '{"format": 99, "key": "KEY", "half": [], "devices": []}',
        '{"format": 1, "key": "another build", "half": [], "devices": []}',
    ],
)
def test_a_damaged_or_foreign_cache_is_made_again(
    fresh: Path, asked: list[Sequence[str]], content: str
) -> None:
    fresh.parent.mkdir(parents=True)
    fresh.write_text(content.replace("KEY", fresh.stem))
    assert all(capability.works for capability in check_machine().half)
    assert len(asked) == 1
    assert json.loads(fresh.read_text())["key"] == fresh.stem


def test_another_torch_build_or_setting_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {check.machine_key()}
    monkeypatch.setattr(torch, "__version__", "9.9")
    keys.add(check.machine_key())
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41-of-a-test")
    keys.add(check.machine_key())
    assert len(keys) == 3


def test_a_cache_that_cannot_be_written_is_no_error(
    fresh: Path, asked: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMANENCE_CACHE", "/proc/nowhere")
    assert check_machine().half


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REMANENCE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert check.cache_folder() == tmp_path / "remanence"
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "own"))
    assert check.cache_folder() == tmp_path / "own"


def test_where_half_precision_fails_it_is_refused_in_one_sentence(
    fresh: Path, asked: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMANENCE_PRETEND_NO_HALF", "1")
    model, x, y = nn.Linear(4, 3), torch.randn(5, 4), torch.zeros(5, dtype=torch.long)
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(
            rm.InputError, match=r"`dtype` must not be b?float16 .*REMANENCE_PRETEND_NO_HALF is set"
        ):
            rm.example_gradient_norms(model, x, y, dtype=dtype)
        with pytest.raises(rm.InputError, match="`dtype` must not be"):
            rm.example_gradient_norms(nn.Linear(4, 3).to(dtype), x.to(dtype), y)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(rm.InputError, match="`dtype` must not be bfloat16"),
    ):
        rm.example_gradient_norms(model, x, y)
    train, _ = digits()
    recipe = Recipe(epochs=1, learning_rate=0.1, precision="bfloat16")
    with pytest.raises(
        rm.InputError, match=r"^`precision` must not be bfloat16 .*`remanence doctor` shows what works.$"
    ):
        train_steps(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), train, recipe, seed=0)
    assert rm.example_gradient_norms(model, x, y).shape == (5,)
    assert rm.example_gradient_norms(model, x, y, dtype=torch.float64).shape == (5,)
    assert asked == [], "to pretend takes no probing, and full precision none at all"
    assert not fresh.exists()


def test_other_devices_are_not_the_cpus_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMANENCE_PRETEND_NO_HALF", "1")
    require_half("dtype", "bfloat16", "cuda")
    assert cannot_run("float32") == ""
    assert cannot_run("bfloat16") == "bfloat16 matmul: REMANENCE_PRETEND_NO_HALF is set"


def test_threads_are_at_most_those_of_the_machine() -> None:

    assert 1 <= usable_threads() <= (os.cpu_count() or 1)
