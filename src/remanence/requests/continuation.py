"""Which run continues another. After a request, further requests must begin from the new run.

A run has one continuation, or examples that were removed from one of its continuations would still be in the other.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

from remanence.errors import RunFolderError
from remanence.storage import SEAL, atomic
from remanence.storage.lock import exclusive, is_held

_MARK = ".request.json"
_LOCK = ".request.lock"


def request_lock(run: Path) -> AbstractContextManager[None]:
    """Held while a request is carried out on a run."""
    return exclusive(run / _LOCK, _busy(run))


def continuation(run: Path) -> Path | None:
    """The folder of the request that was begun from this run, if it still exists."""
    mark = run / _MARK
    if not mark.exists():
        return None
    folder = Path(json.loads(mark.read_text())["out"])
    return folder if folder.exists() else None


def begin_continuation(run: Path, out: Path, *, apart: bool) -> None:
    """Record on a run that it continues in `out`; a second continuation is refused unless `apart`."""
    if not apart:
        _refuse_second(run, out)
    atomic.write_text(run / _MARK, json.dumps({"out": str(out.resolve())}) + "\n")


def check_continuation(run: Path, out: Path) -> None:
    """Refuse a request while another one is being carried out on the run, or when the run has a continuation."""
    if is_held(run / _LOCK):
        raise RunFolderError(_busy(run))
    _refuse_second(run, out)


def _refuse_second(run: Path, out: Path) -> None:
    other = continuation(run)
    if other is None or other == out.resolve():
        return
    if (other / SEAL).exists():
        raise RunFolderError(
            f"{run} goes on in {other}: begin from there, so that the removed examples stay removed (or set `apart`)."
        )
    raise RunFolderError(
        f"An unfinished request on {run} is in {other}; finish it with the command that began it, or delete that "
        "folder. Nothing was changed."
    )


def _busy(run: Path) -> str:
    return f"Another request is being carried out on {run}; wait for it. Nothing was changed."
