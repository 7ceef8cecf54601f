"""The exit codes of all commands; the reference page of the commands has this table."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remanence.requests import Outcome


class ExitCode(IntEnum):
    """What the exit code of a command means."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NOT_FORGOTTEN = 3
    NOT_JUDGED = 4
    DEFECT = 70
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done; `forget`: the outcome is *forgotten* or *retrained*; `verify`: the evidence is valid, "
    "whatever its outcome",
    ExitCode.FAILED: "failed: the computation diverged, `verify` or `diff` found a difference, the disk or the memory "
    "is full",
    ExitCode.REFUSED: "refused: wrong arguments, or a file that is missing, damaged or not trusted; "
    "nothing was changed",
    ExitCode.NOT_FORGOTTEN: "`forget`: the outcome is *not forgotten*; the new run and its evidence say so",
    ExitCode.NOT_JUDGED: "`forget`: the outcome is *carried out, not judged*; there are too few examples, or no model "
    "that never saw such examples was available",
    ExitCode.DEFECT: "a defect of Remanence; the message names a log file with the details to report (EX_SOFTWARE of "
    "sysexits.h)",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C; the message says how to continue",
}


def exit_code_of(outcome: Outcome) -> ExitCode:
    """The exit code of a request with this outcome."""
    from remanence.requests import Outcome

    return {
        Outcome.FORGOTTEN: ExitCode.DONE,
        Outcome.RETRAINED: ExitCode.DONE,
        Outcome.NOT_FORGOTTEN: ExitCode.NOT_FORGOTTEN,
        Outcome.NOT_JUDGED: ExitCode.NOT_JUDGED,
    }[outcome]
