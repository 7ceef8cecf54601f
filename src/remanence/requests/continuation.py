"""Which run continues another. After a request, further requests must begin from the new run.

A run has one continuation, or examples that were removed from one of its continuations would still be in the other. The
record is kept in the run itself, so it holds wherever the new run is moved.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from remanence.errors import RunFolderError
from remanence.storage import SEAL, atomic
from remanence.storage.lock import exclusive, is_held
from remanence.storage.parsing import parse_json, read_file

_MARK = ".request.json"
_LOCK = ".request.lock"


@dataclass(frozen=True)
class Continuation:
    """A request that was begun from a run.

    Args:
        out: folder of the new run, as it was named then.
        finished: whether the new run was sealed; then examples have left the run for good.
        model: SHA-256 of the new weights, once it is finished.
    """

    out: str
    finished: bool = False
    model: str = ""

    @property
    def folder(self) -> Path:
        return Path(self.out)


def request_lock(run: Path) -> AbstractContextManager[None]:
    """Held while a request is carried out on a run."""
    return exclusive(run / _LOCK, _busy(run))


def continuation(run: Path) -> Continuation | None:
    """The request that was begun from this run: finished, or unfinished and still there."""
    try:
        content = read_file(run / _MARK)
    except FileNotFoundError:
        return None
    record = parse_json(content, run / _MARK)
    if (
        not isinstance(record, dict)
        or record.keys() != {"out", "finished", "model"}
        or not isinstance(record["out"], str)
        or not isinstance(record["model"], str)
        or type(record["finished"]) is not bool
        or "\0" in record["out"]
    ):
        raise RunFolderError(f"{run / _MARK} is damaged; it says where the run is continued.")
    entry = Continuation(**record)
    return entry if entry.finished or entry.folder.exists() else None


def begin_continuation(run: Path, out: Path, *, apart: bool) -> None:
    """Record on a run that it continues in `out`; a second continuation is refused unless `apart`."""
    if not apart:
        _refuse_second(run, out)
    _write(run, Continuation(str(out.resolve())))


def finish_continuation(run: Path, out: Path, model: str) -> None:
    """Record that examples leave the run with the model of this hash, just before the new run is sealed."""
    _write(run, Continuation(str(out.resolve()), finished=True, model=model))


def check_continuation(run: Path, out: Path) -> None:
    """Refuse a request while another one is being carried out on the run, or when the run has a continuation."""
    if is_held(run / _LOCK):
        raise RunFolderError(_busy(run))
    _refuse_second(run, out)


def _write(run: Path, entry: Continuation) -> None:
    atomic.write_json(run / _MARK, asdict(entry), private=True)


def _refuse_second(run: Path, out: Path) -> None:
    other = continuation(run)
    if other is None or other.folder == out.resolve():
        return
    if not other.finished and (other.folder / SEAL).exists():
        raise RunFolderError(
            f"A request on {run} was not forgotten; it is in {other.folder}. Go on with it there (`resume`, or "
            "`method` retrain), begin from that run, where its ids stay open, or delete that folder (or set `apart`). "
            "Nothing was changed."
        )
    if other.finished:
        moved = "" if other.folder.exists() else " (it is no longer there; it may have been moved)"
        raise RunFolderError(
            f"{run} is continued in {other.folder}{moved}: begin from that run, so that the removed examples stay "
            "removed (or set `apart`). Nothing was changed."
        )
    raise RunFolderError(
        f"An unfinished request on {run} is in {other.folder}; finish it with the command that began it, or delete "
        "that folder. Nothing was changed."
    )


def _busy(run: Path) -> str:
    return f"Another request is being carried out on {run}; wait for it. Nothing was changed."
