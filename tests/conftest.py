"""What all tests share: one thread per process, so that the same work gives the same bits on any machine."""

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# the user's own list of trusted folders is left alone, and constants that were measured on this machine change no test;
# workers of this session share both folders
for variable in ("XDG_CONFIG_HOME", "REMANENCE_CACHE"):
    own = f"REMANENCE_TEST_{variable}"
    os.environ[variable] = os.environ[own] = os.environ.get(own) or tempfile.mkdtemp(prefix="remanence-test-")
os.environ["OMP_NUM_THREADS"] = "1"  # for this process, before torch is loaded, and for those it starts
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a suite started in the background ignores Ctrl-C, and so would the commands that it interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that the many short ones fill both workers up to the end (with --no-loadscope-reorder)."""
    items.sort(key=lambda item: _turn(item.path.relative_to(Path(__file__).parent).parts))


def _turn(parts: tuple[str, ...]) -> int:
    if parts[0] == "unit":
        return 0 if len(parts) == 2 else 2  # what is about the package as a whole takes no time and says most
    return 2 if parts[0] == "oracles" else 1


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a half precision that plain torch cannot compute in on this machine."""
    for mark in item.iter_markers("half"):
        from remanence.machine import cannot_run

        if reason := cannot_run(mark.args[0]):
            pytest.skip(f"half precision fails here: {reason}")


WaitUntil = Callable[[Callable[[], object], "subprocess.Popen[Any]"], None]


@pytest.fixture(scope="session")
def wait_until() -> WaitUntil:
    """Wait for a sign of progress of a process that is to be killed; it must not have ended by then."""

    def wait(progress: Callable[[], object], process: "subprocess.Popen[Any]") -> None:
        deadline = time.monotonic() + 120
        while not progress():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline, "no sign of progress within two minutes"
            time.sleep(0.002)

    return wait


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make a folder once for all workers of this session; tests copy it before they change anything."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, build: Callable[[Path], object]) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / name).exists():
                build(shared / f"{name}-unfinished")
                (shared / f"{name}-unfinished").rename(shared / name)
        return shared / name

    return make


@pytest.fixture(scope="session")
def carried_out(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with a calibrated run, a signed deletion request on it (new), the keys and the files that it took."""
    return made_once("carried-out", _carry_out)


def _carry_out(place: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    from remanence.data import digits
    from remanence.forgetting import write_forget_sets
    from remanence.requests import CalibrationSettings, ForgetOptions, calibrate, forget, read_request
    from remanence.training import Recipe, RunSettings, open_run, train_run
    from remanence.types import ForgetSet

    place.mkdir()
    ids = digits()[0].ids
    recipe = Recipe(epochs=4, learning_rate=0.2, batch_size=64, weight_decay=1e-3)
    train_run(
        RunSettings(
            "digits",
            "mlp",
            recipe,
            record=2,
            placement="even",
            model_options={"hidden": [16]},
            keep_checkpoints=True,
        ),
        place / "run",
    )
    calibrate(
        open_run(place / "run"),
        CalibrationSettings(method="finetune", sets=20, models=20, budget=20),
        workers=1,
    )
    (place / "request.csv").write_text("id\n" + "".join(f"{example}\n" for example in ids[20:60]))
    write_forget_sets(place / "set.json", [ForgetSet("some", ids[100:130])])
    key = Ed25519PrivateKey.generate()
    (place / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (place / "key.pub").write_bytes(public)
    run = open_run(place / "run")
    forget(run, read_request(place / "request.csv", run), place / "new", ForgetOptions(key=key))


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Overrides that make any study a matter of seconds."""
    return [
        "seeds=1",
        "train.epochs=1",
        "train.record=1",
        "unlearn.epochs=1",
        "tune.learning_rates=[]",
        "audit.oracles=1",
        "audit.metrics=['ua']",
        "forget.sizes=[0.05]",
    ]
