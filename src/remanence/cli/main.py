"""The command `remanence`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from cyclopts import App, CycloptsError

from remanence._version import __version__
from remanence.cli import console
from remanence.cli.audit import app as audit
from remanence.cli.barrier import app as barrier
from remanence.cli.bound import app as bound
from remanence.cli.calibrate import app as calibrate
from remanence.cli.certify import app as certify
from remanence.cli.dashboard import app as dashboard
from remanence.cli.data import app as data
from remanence.cli.demo import app as demo
from remanence.cli.diff import app as diff
from remanence.cli.doctor import app as doctor
from remanence.cli.forget import app as forget
from remanence.cli.plan import app as plan
from remanence.cli.purge import app as purge
from remanence.cli.score import app as score
from remanence.cli.select import app as select
from remanence.cli.study import app as study
from remanence.cli.trace import app as trace
from remanence.cli.train import app as train
from remanence.cli.tune import app as tune
from remanence.cli.unlearn import app as unlearn
from remanence.cli.verify import app as verify
from remanence.errors import FULL_DISK, DataWarning, InputError, RemanenceError

app = App(
    name="remanence",
    version=__version__,
    help="""How hard is each training example to forget? Know it before anyone asks, forget it in the
fewest steps, and show that it is gone.

Start here: `remanence demo`""",
    help_format="markdown",
    print_error=False,
    exit_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
_COMMANDS = (
    demo,
    data,
    train,
    trace,
    diff,
    score,
    select,
    tune,
    unlearn,
    audit,
    barrier,
    bound,
    certify,
    study,
    calibrate,
    plan,
    forget,
    verify,
    purge,
    dashboard,
    doctor,
)
for command in _COMMANDS:
    app.command(command)


_UNUSABLE = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.ENOENT)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit code: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    try:
        with _warnings_in_one_line():
            app(list(arguments))
    except (CycloptsError, InputError) as error:
        console.print_error(_sentence(error))
        return 2
    except RemanenceError as error:
        console.print_error(str(error))
        return 1
    except KeyboardInterrupt:
        console.print_error("Interrupted. What was finished is kept; the same command goes on from there.")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno in FULL_DISK:
            console.print_error(f"{error.strerror}. What was finished is kept; make room and run it again.")
            return 1
        if error.errno in _UNUSABLE and error.filename is not None:
            console.print_error(f"{error.filename} cannot be used: {error.strerror}.")
            return 2
        raise
    return 0


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """What the library warns of is a remark here, not a place in the code."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def say(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, UserWarning):
                console.note(f"warning: {' '.join(str(message).split())}")
            else:
                show(message, category, *place, **more)

        warnings.showwarning = say
        warnings.simplefilter("always", DataWarning)
        yield


def _sentence(error: Exception) -> str:
    """A parser's error without its decoration."""
    return " ".join(str(error).split())
