"""What a person sees: progress on stderr, results on stdout, one sentence for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
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

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_error(sentence: str) -> None:
    """One sentence on stderr."""
    err.print(f"[bold red]error:[/] {_escaped(sentence)}", soft_wrap=True)


def note(sentence: str) -> None:
    """A remark on stderr, where it cannot spoil what is piped."""
    err.print(_escaped(sentence), style="dim", soft_wrap=True)


@contextmanager
def progress_bar(*, show: bool = True) -> Iterator[Progress]:
    """A live bar with time left on a terminal; nothing at all in a pipe."""
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


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
