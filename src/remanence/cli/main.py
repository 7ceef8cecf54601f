"""The command `remanence`."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import sysconfig
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, Group

from remanence._version import __version__
from remanence.cli import console
from remanence.cli.exit_codes import ExitCode
from remanence.cli.messages import continuation, in_options
from remanence.errors import FULL_DISK, UNREADABLE, DataWarning, InputError, RemanenceError
from remanence.memory import keep_freed_memory

app = App(
    name="remanence",
    version=__version__,
    help="""Measure how hard each training example is to forget, before anyone asks; unlearn it in the fewest
steps; show that it is gone.

Start here: `remanence demo`""",
    help_format="markdown",
    print_error=False,
    exit_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
_HEADINGS = {
    "Get started": ("demo", "doctor", "data", "dashboard"),
    "Train and score": ("train", "import", "score", "diff", "trust"),
    "Unlearn and audit": ("select", "tune", "unlearn", "audit", "barrier"),
    "Deletion requests": ("calibrate", "plan", "forget", "verify", "purge"),
    "Theory and studies": ("bound", "certify", "study"),
}
_MODULES = {"import": "import_run"}
"""Commands whose names are no names of modules."""
_LAZY = {"bound": "Calculate a bound: its value, status, assumptions and formula."}
"""Commands that are imported when they are used, because `remanence --help` must not wait for scipy."""
for heading, names in _HEADINGS.items():
    group = Group.create_ordered(heading)
    for position, name in enumerate(names):
        if name in _LAZY:
            place = f"remanence.cli.{name}:app"
            app.command(place, name=name, help=_LAZY[name], group=group, sort_key=position)
            continue
        command = import_module(f"remanence.cli.{_MODULES.get(name, name)}").app
        command.group, command.sort_key = group, position
        app.command(command)
app["--help"].group = app["--version"].group = Group.create_ordered("Options")

_UNUSABLE = (errno.EACCES, errno.EROFS, errno.EPERM, errno.EEXIST, *UNREADABLE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its `ExitCode`."""
    keep_freed_memory()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that is not Unicode is printed with escapes
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    try:
        if any("\0" in argument for argument in arguments):
            raise InputError("An argument must not have null characters.")
        with _warnings_in_one_line():
            return execute(arguments)
    except CycloptsError as error:
        console.print_error(_one_line(error))
        return ExitCode.REFUSED
    except RemanenceError as error:
        console.print_error(in_options(_one_line(error), app, arguments))
        return ExitCode.REFUSED if isinstance(error, InputError) else ExitCode.FAILED
    except KeyboardInterrupt:
        console.print_error(f"Interrupted. {continuation(app, arguments)}".rstrip())
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except OSError as error:
        if error.errno in FULL_DISK:
            console.print_error(f"{error.strerror}. Make room first. {continuation(app, arguments)}".rstrip())
            return ExitCode.FAILED
        if error.errno in _UNUSABLE:
            console.print_error(f"{_name(error)} cannot be used: {error.strerror}.")
            return ExitCode.REFUSED
        return _unexpected(error)
    except MemoryError:
        console.print_error("This needs more memory than there is.")
        return ExitCode.FAILED
    except Exception as error:  # nobody expected it: a defect, which has an exit code of its own
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    """Keep the traceback in a file, and say in one line whose code raised it and where the details are."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="remanence-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as log:
        traceback.print_exception(error, file=log)
    own = _frame_of_user(error)
    if own is not None:
        reason = _one_line(error) or "no message"
        console.print_error(
            f"Your own code raised {type(error).__name__} in {own.filename}, line {own.lineno}: {reason} (details in "
            f"{log.name})."
        )
        return 2
    console.print_error(
        f"Unexpected {type(error).__name__}, a defect of Remanence. Please report it with the details in {log.name}; "
        "read them first, as they may name your files and ids."
    )
    return ExitCode.DEFECT


def _frame_of_user(error: Exception) -> traceback.FrameSummary | None:
    """Where the user's task raised an error; None if Remanence did. Frames of installed libraries are skipped."""
    package = str(Path(__file__).parents[1])
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    frames = traceback.extract_tb(error.__traceback__)
    called = [frame for frame in frames if frame.filename.startswith(package) and frame.filename != __file__]
    for frame in reversed(frames if called else ()):  # this module itself never calls a task
        if frame.filename.startswith(package):
            return None
        if not frame.filename.startswith(("<", *libraries)):
            return frame
    return None


def _name(error: OSError) -> str:
    return "A file" if error.filename is None else str(error.filename)


def execute(arguments: Sequence[str]) -> int:
    """Parse the arguments and call the command; its exit code is 0 unless it returns another one."""
    result = app(list(arguments))
    return result if isinstance(result, ExitCode) else ExitCode.DONE


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print the library's warnings without their place in the code."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, UserWarning):
                console.note(f"warning: {_one_line(message)}")
            else:
                show(message, category, *place, **more)

        warnings.showwarning = note
        warnings.simplefilter("always", DataWarning)
        yield


def _one_line(message: Exception | str) -> str:
    return " ".join(str(message).split())
