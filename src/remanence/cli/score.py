"""`remanence score`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.table import Table

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.scores import ScoreTable

app = App(name="score")
Flag = Annotated[bool, Parameter(negative="")]
Several = Parameter(consume_multiple=True, negative="")


@app.default
def score(
    run: Path,
    /,
    *,
    score: Annotated[list[str] | None, Several] = None,
    alpha: Annotated[list[float] | None, Several] = None,
    sigma: Annotated[list[float] | None, Several] = None,
    composition: Literal["pathwise", "stepwise", "printed", "accountant"] = "pathwise",
    rule: Literal["right", "left", "trapezoid", "upper"] = "right",
    scale: Literal["mechanism", "raw"] = "mechanism",
    out: Path | None = None,
    force: Flag = False,
    json: Flag = False,
) -> None:
    """Say how hard each example of a run is to forget, by one or several scores.

    Everything is computed from the run's trace, with no model at hand. Writes one table with an `id` column
    and prints how far the scores agree (Spearman's rank correlation).

    Example:

    `remanence score run --out scores.csv`

    `remanence score run --score privacy_loss --sigma 0.01 0.001 0.0005 0.0001`

    Parameters
    ----------
    run:
        A run folder with a trace.
    score:
        Which scores: privacy_loss, gradient_norm_middle, gradient_norm_end, gradient_norm_mean, confidence,
        error_norm. All that the trace allows, by default.
    alpha:
        Orders of the privacy loss; 8 by default.
    sigma:
        Noise levels of the privacy loss; the run's own by default.
    composition:
        How the privacy loss adds up over steps.
    rule:
        Which checkpoint stands for the steps between two.
    scale:
        raw leaves out the division by the batch size, as the paper's figures do.
    out:
        The table to write, .csv, .parquet or .json.
    force:
        Replace the file if it exists.
    json:
        Print one JSON document.
    """
    from remanence.scores import score_table, write_scores
    from remanence.storage import open_folder, read_trace

    table = score_table(
        read_trace(open_folder(run)),
        score or (),
        alphas=tuple(dict.fromkeys(alpha or [8.0])),
        sigmas=tuple(dict.fromkeys(sigma)) if sigma else (None,),
        composition=composition,
        rule=rule,
        scale=scale,
    )
    if out is not None:
        write_scores(out, table, overwrite=force)
    if json:
        console.print_json(_document(run, out, table))
    else:
        _print(table, out)


def _document(run: Path, out: Path | None, table: ScoreTable) -> dict[str, Any]:
    matrix = [[None if value != value else value for value in row] for row in table.spearman().tolist()]
    return {
        "run": str(run),
        "out": None if out is None else str(out),
        "examples": len(table.ids),
        "scores": [
            {
                "column": name,
                "score": scores.name,
                "params": dict(scores.params),
                "status": scores.status.value,
                "reasons": list(scores.reasons),
            }
            for name, scores in table.columns.items()
        ],
        "spearman": {"columns": list(table.columns), "matrix": matrix},
    }


def _print(table: ScoreTable, out: Path | None) -> None:
    import numpy as np

    shown = Table(box=None, pad_edge=False)
    for heading in ("", "score", "median", "highest", "status"):
        shown.add_column(heading, no_wrap=True)
    for number, (name, scores) in enumerate(table.columns.items(), start=1):
        middle, top = np.median(scores.values), scores.values.max()
        over = f", over {scores.params['moments']}" if "moments" in scores.params else ""
        shown.add_row(str(number), name + over, f"{middle:.4g}", f"{top:.4g}", scores.status.value)
    console.out.print(shown)
    reasons = dict.fromkeys(reason for scores in table.columns.values() for reason in scores.reasons)
    console.out.print("\n".join(f"  {reason}" for reason in reasons), soft_wrap=True, markup=False)
    if len(table.columns) > 1:
        console.out.print("\nSpearman's rank correlation", soft_wrap=True)
        matrix = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        matrix.add_column("", no_wrap=True)
        for number in range(1, len(table.columns) + 1):
            matrix.add_column(str(number), justify="right", no_wrap=True)
        for number, row in enumerate(table.spearman(), start=1):
            matrix.add_row(str(number), *("–" if value != value else f"{value:.4f}" for value in row))
        console.out.print(matrix)
    if out is not None:
        console.out.print(f"\n{len(table.ids):,} examples in {out}", soft_wrap=True, markup=False)
