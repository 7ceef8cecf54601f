"""`remanence demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="demo")


@app.default
def demo(
    *,
    out: Path = Path("demo"),
    seeds: int | None = None,
    quick: Annotated[bool, Parameter(negative="")] = False,
    workers: int | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Tell the whole story on scikit-learn's digits: which examples are hard to forget, and is it true?

    Trains a small network, computes each example's privacy loss, forms five forget sets of rising
    difficulty, unlearns each by fine-tuning and measures how long it takes. Writes `report.html`,
    `results.json` and the figures. Run it again and it goes on where it was stopped.

    Example:

    `remanence demo --out demo`

    `remanence demo --quick --json | python -m json.tool`

    Parameters
    ----------
    out:
        Folder for the results; new, empty, or of an earlier demo.
    seeds:
        Independent repetitions: 5, or 1 with --quick.
    quick:
        A smaller version in well under a minute, to see that everything works.
    workers:
        Processes to use; as many as there are cores.
    json:
        Print the results as one JSON document.
    """
    from remanence.study.demo import run_demo

    with console.progress_bar() as progress:
        outcome = run_demo(
            out, quick=quick, seeds=seeds, workers=workers, note=console.note, progress=progress
        )
    if json:
        console.print_json(outcome.results)
    else:
        console.out.print(outcome.summary, soft_wrap=True)
