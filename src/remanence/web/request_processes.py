"""Requests carried out by processes of their own, which live on when the dashboard ends.

Beside a run, RUN-requests/KEY/ holds one request that was started here:

    ids/NAME.csv    the ids, as they came
    request.json    what is being done, by which process
    progress.json   how far it is
    log.txt         what the command said
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
from remanence.web.plans import Asked

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
    """One request that was started here, as it is on disk now."""

    folder: Path

    @property
    def key(self) -> str:
        """Its name."""
        return self.folder.name

    @property
    def out(self) -> Path:
        """The run that it makes."""
        return self.folder / "run"

    @property
    def run(self) -> Path:
        """The run that it began from: beside it, wherever both have been moved."""
        beside = self.folder.parent
        return beside.with_name(beside.name.removesuffix(_BESIDE))

    @property
    def note(self) -> Mapping[str, Any]:
        """What was asked for."""
        return _read(self.folder / _NOTE)

    @property
    def state(self) -> State:
        """What has become of it; a process that was killed has stopped."""
        if is_held(self.folder / _LOCK):
            return "running"
        return "finished" if (self.out / SEAL).exists() else "stopped"

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """The phase, the steps done in it and the most there can be; none before the first."""
        return _read(self.folder / _PROGRESS) or None

    def said(self) -> str:
        """What the command said last; of a traceback, its last line."""
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
    """Where the requests on a run are kept: beside it."""
    place = run.resolve()
    return place.with_name(place.name + _BESIDE)


def jobs_of(run: Path) -> list[Job]:
    """The requests that were started here on a run, the oldest first."""
    found = ((Job(note.parent), _read(note)) for note in jobs_folder(run).glob(f"*/{_NOTE}"))
    # one that is being removed at this moment has no note any more
    dated = sorted((str(note.get("when", "")), job.key, job) for job, note in found if note)
    return [job for *_, job in dated]


class Jobs:
    """Starts and stops them."""

    def __init__(self, key: Path | None = None) -> None:
        self._key = key
        self._lock = threading.Lock()

    def start(self, run: Path, asked: Asked, *, asked_by: str = "", oracle: bool = False) -> Job:
        """Carry out a request; one that has been begun, or would go a second way from the run, is refused."""
        job = Job(jobs_folder(run) / asked.key)
        note = {
            "file": asked.file_name,
            "column": asked.column,
            "size": len(asked.plan.request.ids),
            "asked_by": asked_by,
            "oracle": oracle,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "forecast": asked.plan.document(ids=False)["forecast"],
        }
        with self._lock:
            if job.note:  # with a list and orders of its own, which going on needs
                raise RunFolderError(_BEGUN[job.state])
            _refuse_another(job)
            job.folder.mkdir(parents=True, exist_ok=True)
            handle = acquire(job.folder / _LOCK, _UNDER_WAY)
            try:
                atomic.write_bytes(job.folder / _IDS / asked.file_name, asked.content)
                self._launch(job, note, handle)
            finally:
                os.close(handle)  # the process has its own copy
        return job

    def resume(self, job: Job) -> None:
        """Go on with one that has stopped."""
        with self._lock:
            handle = acquire(job.folder / _LOCK, _UNDER_WAY)
            try:
                if (job.out / SEAL).exists():
                    raise RunFolderError(_DONE)
                _refuse_another(job)
                self._launch(job, dict(job.note), handle)
            finally:
                os.close(handle)

    def stop(self, job: Job) -> None:
        """Ask its process to end, as Ctrl-C would; what it has done is kept."""
        with self._lock:  # nobody starts or removes it meanwhile
            if job.state != "running":
                raise InputError(_NOT_UNDER_WAY)
            process = job.note.get("process")
            if process is None:
                raise InputError("This request is just being started or removed; try again in a moment.")
            try:
                os.kill(int(process), signal.SIGINT)  # the lock is held, so the number is still its own
            except ProcessLookupError:
                raise InputError(_NOT_UNDER_WAY) from None

    def discard(self, job: Job) -> None:
        """Remove one that has stopped before its end: nothing of the run it began from has changed."""
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
        with (job.folder / _LOG).open("wb") as log:
            child = subprocess.Popen(
                self._command(job, note),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[handle],
                start_new_session=True,
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
    """A run goes one way; a process that was just started may not have said so on disk yet."""
    if any(other.state == "running" for other in jobs_of(job.run) if other.folder != job.folder):
        raise RunFolderError(
            "Another request is being carried out on this run; wait for it. Nothing was changed."
        )
    check_continuation(job.run, job.out)


_NOT_UNDER_WAY = "This request is not under way; there is nothing to stop."
_UNDER_WAY = (
    "This very request is being carried out already, started from another window. Nothing was changed."
)
_DONE = "This very request has been carried out already. Nothing was changed."
_BEGUN: Mapping[State, str] = {
    "running": _UNDER_WAY,
    "finished": _DONE,
    "stopped": "This very request was begun before and has stopped; go on with it, or give it up, on its own page. "
    "Nothing was changed.",
}


def _write(job: Job, note: Mapping[str, Any]) -> None:
    atomic.write_text(job.folder / _NOTE, json.dumps(note, indent=2) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
