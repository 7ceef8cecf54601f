"""`remanence demo`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Flag, Json, Workers

app = App(name="demo")


@app.default
def demo(
    *,
    out: Path = Path("demo"),
    seeds: int | None = None,
    quick: Flag = False,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Run everything on scikit-learn's digits: which examples are hard to forget, and is the score right?

    Trains a small network, computes the privacy loss of each example, forms five forget sets of increasing difficulty,
    unlearns each by fine-tuning and measures how long it takes. Writes `report.html`, `results.json` and the figures.
    If it is interrupted, the same command continues.

    For example:

    `remanence demo --out demo`

    `remanence demo --quick --json | python -m json.tool`

    Parameters
    ----------
    out:
        Folder for the results; new, empty, or of an earlier demo.
    seeds:
        Number of independent repetitions; 5 by default, 1 with --quick.
    quick:
        Run a smaller version in well under a minute, to check that everything works.
    """
    from remanence.study.demo import run_demo

    with console.progress_bar() as progress:
        result = run_demo(
            out, quick=quick, seeds=seeds, workers=workers, note=console.note, progress=progress
        )
    if json:
        console.print_json(result.results)
    else:
        console.out.print(result.summary, soft_wrap=True)
