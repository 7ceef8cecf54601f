"""Requests that the dashboard started. Each runs in its own process, which continues when the dashboard ends.

The folder RUN-requests/KEY/ beside a run holds one request:

    ids/NAME.csv    the ids, as they were sent
    request.json    what is being done, by which process
    progress.json   how far it is
    log.txt         the output of the command
    run/            the new run, with its evidence
    .lock           held by the process as long as it lives
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from remanence.errors import InputError, RunFolderError
from remanence.requests.continuation import check_continuation
from remanence.storage import SEAL, atomic
from remanence.storage.lock import acquire, is_held
from remanence.storage.parsing import parse_json
from remanence.web.file_shapes import Shape, has_shape, is_flag, is_number, is_number_or_none, is_text
from remanence.web.plans import PlannedRequest
from remanence.web.uploads import harmless

State = Literal["running", "finished", "stopped"]
_NOTE = "request.json"
_PROGRESS = "progress.json"
_LOG = "log.txt"
_IDS = "ids"
_LOCK = ".lock"
_BESIDE = "-requests"
_TAIL = 2000


@dataclass(frozen=True)
class Job:
    """One request that the dashboard started, as it is on disk now."""

    folder: Path

    @property
    def key(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def out(self) -> Path:
        """Folder of the new run."""
        return self.folder / "run"

    @property
    def run(self) -> Path:
        """Folder of the run that it started from, found beside it, so that both can be moved."""
        beside = self.folder.parent
        return beside.with_name(beside.name.removesuffix(_BESIDE))

    @property
    def note(self) -> Mapping[str, Any]:
        """What was requested; empty when it is not there, or damaged."""
        note = _read(self.folder / _NOTE)
        return note if has_shape(note, _NOTE_SHAPE) else {}

    @property
    def damage(self) -> str:
        """What is wrong with the record of this request; empty when nothing is."""
        path = self.folder / _NOTE
        if self.note or not path.exists():
            return ""
        return f"{path} is damaged: it does not say what was requested. Nothing was changed."

    @property
    def state(self) -> State:
        """Its state now; a request whose process was killed has stopped."""
        if is_held(self.folder / _LOCK):
            return "running"
        return "finished" if (self.out / SEAL).exists() else "stopped"

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """The phase, the steps done in it and their maximum; None before the first step."""
        progress = _read(self.folder / _PROGRESS)
        return progress if has_shape(progress, _PROGRESS_SHAPE) else None

    def last_output(self) -> str:
        """The end of the output of the command; of a traceback, its last line."""
        try:
            text = (self.folder / _LOG).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
        before, traceback, after = text.partition("Traceback (most recent call last)")
        if traceback:
            last = after.splitlines()[-1].strip()
            text = before if last == "KeyboardInterrupt" else f"{before}{last}"
        return text[-_TAIL:].strip()


def jobs_folder(run: Path) -> Path:
    """The folder of the requests on a run, beside the run."""
    place = run.resolve()
    return place.with_name(place.name + _BESIDE)


def jobs_of_run(run: Path) -> list[Job]:
    """The requests on a run that the dashboard started, oldest first."""
    jobs = [Job(note.parent) for note in jobs_folder(run).glob(f"*/{_NOTE}")]
    return sorted(jobs, key=lambda job: (str(job.note.get("when", "")), job.key))


class JobRunner:
    """Starts, stops and discards requests."""

    def __init__(self, key: Path | None = None) -> None:
        self._key = key
        self._lock = threading.Lock()

    def start(self, run: Path, planned: PlannedRequest, *, asked_by: str = "", oracle: bool = False) -> Job:
        """Carry out a request; one that was started before, or a second one on the same run, is refused."""
        job = Job(jobs_folder(run) / planned.key)
        note = {
            "file": planned.file_name,
            "column": planned.column,
            "size": len(planned.plan.request.ids),
            "asked_by": asked_by,
            "oracle": oracle,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "forecast": planned.plan.document(ids=False)["forecast"],
        }
        with self._lock:
            if job.damage:
                raise RunFolderError(job.damage)
            if job.note:  # it has a list and options of its own, which resuming needs
                raise RunFolderError(_BEGUN[job.state])
            _refuse_another(job)
            for folder in (job.folder.parent, job.folder, job.folder / _IDS):
                _make_private(folder)
            handle = acquire(job.folder / _LOCK, _UNDER_WAY)
            try:
                atomic.write_bytes(job.folder / _IDS / planned.file_name, planned.content, private=True)
                self._launch(job, note, handle)
            finally:
                os.close(handle)  # the process has its own copy
        return job

    def resume(self, job: Job) -> None:
        """Resume a request that has stopped."""
        with self._lock:
            handle = acquire(job.folder / _LOCK, _UNDER_WAY)
            try:
                if (job.out / SEAL).exists():
                    raise RunFolderError(_DONE)
                if not job.note:
                    raise RunFolderError(job.damage or _NOT_UNDER_WAY)
                _refuse_another(job)
                self._launch(job, dict(job.note), handle)
            finally:
                os.close(handle)

    def stop(self, job: Job) -> None:
        """Interrupt its process, as Ctrl-C does; finished work is kept."""
        with self._lock:  # nobody starts or removes it meanwhile
            if job.state != "running":
                raise InputError(_NOT_UNDER_WAY)
            process = job.note.get("process")
            if type(process) is not int or process <= 1:
                raise InputError("This request is just being started or removed; try again in a moment.")
            try:
                os.kill(process, signal.SIGINT)  # the lock is held, so the number is still its own
            except ProcessLookupError:
                raise InputError(_NOT_UNDER_WAY) from None

    def discard(self, job: Job) -> None:
        """Delete the folder of a request that has stopped; the run that it started from is unchanged."""
        with self._lock:
            handle = acquire(job.folder / _LOCK, _UNDER_WAY)
            try:
                if (job.out / SEAL).exists():
                    raise InputError("This request is finished; its run and evidence are kept.")
                # another dashboard must not take the number of the process that has ended for that of a living one
                _write(job, {name: value for name, value in job.note.items() if name != "process"})
                shutil.rmtree(job.folder)
            finally:
                os.close(handle)

    def _launch(self, job: Job, note: dict[str, Any], handle: int) -> None:
        if os.name != "posix":
            raise InputError(
                "Requests can be started here on Linux and macOS; elsewhere use `remanence forget`."
            )
        (job.folder / _PROGRESS).unlink(missing_ok=True)
        note.pop("process", None)
        _write(job, note)  # so that nobody takes an earlier process for this one
        (job.folder / _LOG).unlink(missing_ok=True)  # one of another user would keep its mode
        with open(job.folder / _LOG, "wb", opener=_open_private) as log:
            child = subprocess.Popen(
                self._command(job, note),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[handle],
                start_new_session=True,
                umask=0o077,  # what it writes lists ids
                env=os.environ | {"NO_COLOR": "1"},
            )
        threading.Thread(target=child.wait, daemon=True).start()  # so that an ended one leaves no zombie
        _write(job, note | {"process": child.pid})

    def _command(self, job: Job, note: Mapping[str, Any]) -> list[str]:
        ids, out = job.folder / _IDS / note["file"], job.out
        command = [sys.executable, "-m", "remanence", "forget", str(job.run), f"--ids={ids}", f"--out={out}"]
        command += [f"--column={note['column']}", f"--progress={job.folder / _PROGRESS}"]
        command += [f"--asked-by={note['asked_by']}"] if note["asked_by"] else []
        command += ["--oracle"] if note["oracle"] else []
        command += [f"--key={self._key.resolve()}"] if self._key is not None else []
        return command


def _refuse_another(job: Job) -> None:
    """A run has one continuation; a process that was just started may not have recorded it yet."""
    if any(other.state == "running" for other in jobs_of_run(job.run) if other.folder != job.folder):
        raise RunFolderError(
            "Another request is being carried out on this run; wait for it. Nothing was changed."
        )
    check_continuation(job.run, job.out)


_NOT_UNDER_WAY = "This request is not running; there is nothing to stop."
_UNDER_WAY = "This request is already running, started from another window. Nothing was changed."
_DONE = "This request has already been carried out. Nothing was changed."
_BEGUN: Mapping[State, str] = {
    "running": _UNDER_WAY,
    "finished": _DONE,
    "stopped": "This request was started before and has stopped; resume or discard it on its own page. "
    "Nothing was changed.",
}


def _write(job: Job, note: Mapping[str, Any]) -> None:
    atomic.write_text(job.folder / _NOTE, json.dumps(note, indent=2) + "\n", private=True)


def _make_private(folder: Path) -> None:
    """A folder that only the user can enter, whatever the umask."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when it is missing or damaged."""
    try:
        content = parse_json(path.read_bytes(), path)
    except (OSError, RunFolderError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_forecast(value: Any) -> bool:
    return has_shape(value, {"steps": is_number, "low": is_number, "high": is_number_or_none})


_NOTE_SHAPE: Shape = {
    # a name and not a path: it becomes an argument of the command
    "file": lambda value: is_text(value) and value == harmless(value),
    "column": is_text,
    "size": is_number,
    "asked_by": is_text,
    "oracle": is_flag,
    "when": is_text,
    "forecast": _is_forecast,
}
_PROGRESS_SHAPE: Shape = {"phase": is_text, "done": is_number, "total": is_number}
