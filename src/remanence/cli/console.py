"""The terminal: progress on stderr, results on stdout, one sentence for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

out = Console(highlight=False, markup=False)
err = Console(stderr=True, highlight=False, markup=False)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_error(sentence: str) -> None:
    """Print one sentence on stderr."""
    err.print(Text.assemble(("error:", "bold red"), f" {_printable(sentence)}"), soft_wrap=True)


def note(sentence: str) -> None:
    """Print a remark on stderr, so that piped output stays clean."""
    err.print(_printable(sentence), style="dim", soft_wrap=True)


def note_skipped(skipped: Mapping[str, int]) -> None:
    """Say which ids of a list were skipped, by reason."""
    if skipped:
        reasons = "; ".join(f"{count} {reason}" for reason, count in skipped.items())
        note(f"Skipped {sum(skipped.values())} ids: {reasons}.")


@contextmanager
def progress_bar(*, show: bool = True) -> Iterator[Progress]:
    """A progress bar with the time left; nothing when stderr is not a terminal."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=err,
        disable=not (show and err.is_terminal),
        transient=True,
    ) as progress:
        yield progress


@contextmanager
def progress(description: str, *, show: bool = True) -> Iterator[Callable[[float, float], None]]:
    """A bar for one task; gives the function to call with the amount done and the total."""
    with progress_bar(show=show) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def table(*headings: str) -> Table:
    """An empty table without borders."""
    made = Table(box=None, pad_edge=False)
    for heading in headings:
        made.add_column(heading, no_wrap=True)
    return made


def _printable(text: str) -> str:
    """Control characters as escapes: names in files of strangers must not steer the terminal."""
    return "".join(
        letter
        if letter.isprintable() or letter == "\n"
        else letter.encode("unicode_escape", "replace").decode()
        for letter in text
    )
