"""`remanence doctor`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.exit_codes import ExitCode
from remanence.cli.options import DataDir, Json

if TYPE_CHECKING:
    from remanence.doctor import Check

app = App(name="doctor")
Measure = Annotated[
    bool,
    Parameter(negative="", help="Measure the constants that choose the fastest form of a gradient norm."),
]


@app.default
def doctor(*, data_dir: DataDir = None, measure: Measure = False, json: Json = False) -> None:
    """Check this machine: versions, devices, half precision, threads, disk space, data sets and extras.

    What torch can compute is tried in a separate process, once per machine and torch build. Exit code 1 when torch
    cannot compute on the CPU at all.

    Gradient norms have several exact forms. With --measure, the constants that choose the fastest one are measured on
    this machine (some seconds; nothing else should run) and kept for this torch build; otherwise built-in ones hold.

    For example:

    `remanence doctor`

    `remanence doctor --measure`

    `remanence doctor --json | python -m json.tool`
    """
    from remanence.doctor import check_installation

    checks = check_installation(data_dir, measure=measure)
    if json:
        console.print_json({"findings": [asdict(check) for check in checks]})
    else:
        _print(checks)
    if not all(check.ok for check in checks if check.essential):
        sys.exit(ExitCode.FAILED)


def _print(checks: list[Check]) -> None:
    """Print one line per check, and its advice on a line below."""
    previous = ""
    for check in checks:
        if check.topic != previous:
            console.out.print(check.topic)
        previous = check.topic
        lines = [f"  {'✓' if check.ok else '✗'} {check.name:<16} {check.value}"]
        lines += [f"{'':<21}{check.advice}"] if check.advice else []
        console.out.print("\n".join(lines), soft_wrap=True, markup=False)
