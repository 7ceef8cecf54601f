"""The git commit of the sources that compute, where they are a checkout."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1]
_SECONDS = 10


@cache
def source_commit() -> str:
    """The commit of this package's sources, with `+changes` if they differ from it; empty outside a git checkout."""
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--", str(SOURCES)) if commit else ""
    return f"{commit}+changes" if changed else commit


def git(*arguments: str, folder: Path = SOURCES) -> str:
    """The output of a git command in a folder; empty where git cannot answer."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
