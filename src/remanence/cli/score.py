"""`remanence score`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.options import Force, Json, Several

if TYPE_CHECKING:
    from rich.table import Table

    from remanence.scores import ScoreTable

app = App(name="score")


@app.default
def score(
    run: Path,
    /,
    *,
    names: Annotated[list[str] | None, Several, Parameter(name="--score")] = None,
    alphas: Annotated[list[float] | None, Several, Parameter(name="--alpha")] = None,
    sigmas: Annotated[list[float] | None, Several, Parameter(name="--sigma")] = None,
    composition: Literal["pathwise", "stepwise", "printed", "accountant"] = "pathwise",
    rule: Literal["right", "left", "trapezoid", "upper"] = "right",
    scale: Literal["mechanism", "raw"] = "mechanism",
    out: Path | None = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Score how hard each example of a run is to forget, by one or several scores.

    The scores are computed from the run's trace, without the model. Writes one table with a column `id`, and prints
    the rank correlation of the scores (Spearman).

    For example:

    `remanence score run --out scores.csv`

    `remanence score run --score privacy_loss --sigma 0.01 0.001 0.0005 0.0001`

    Parameters
    ----------
    run:
        A run folder with a trace.
    names:
        Names of scores: privacy_loss, gradient_norm_middle, gradient_norm_end, gradient_norm_mean, confidence,
        error_norm; by default all that the trace allows.
    alphas:
        Rényi orders of the privacy loss; 8 by default.
    sigmas:
        Noise levels of the privacy loss; the run's own by default.
    composition:
        How the privacy losses of the steps are added.
    rule:
        Which checkpoint represents the steps between two checkpoints.
    scale:
        `raw` leaves out the division by the batch size, as in the paper's figures.
    out:
        Table to write: .csv, .parquet or .json.
    """
    from remanence.scores import score_table, write_scores
    from remanence.storage import open_folder, read_trace

    table = score_table(
        read_trace(open_folder(run)),
        names or (),
        alphas=tuple(dict.fromkeys(alphas or [8.0])),
        sigmas=tuple(dict.fromkeys(sigmas)) if sigmas else (None,),
        composition=composition,
        rule=rule,
        scale=scale,
    )
    if out is not None:
        write_scores(out, table, force=force)
    if json:
        console.print_json({"run": str(run), "out": None if out is None else str(out), **table.document()})
    else:
        _print(table, out)


def _print(table: ScoreTable, out: Path | None) -> None:
    console.out.print(_columns(table))
    reasons = dict.fromkeys(reason for scores in table.columns.values() for reason in scores.reasons)
    console.out.print("\n".join(f"  {reason}" for reason in reasons), soft_wrap=True, markup=False)
    if len(table.columns) > 1:
        console.out.print("\nSpearman's rank correlation", soft_wrap=True)
        console.out.print(_correlations(table))
    if out is not None:
        console.out.print(f"\n{len(table.ids):,} examples in {out}", soft_wrap=True, markup=False)


def _columns(table: ScoreTable) -> Table:
    import numpy as np

    shown = console.table("", "score", "median", "highest", "status")
    for number, (name, scores) in enumerate(table.columns.items(), start=1):
        median, highest = np.median(scores.values), scores.values.max()
        over = f", over {scores.params['moments']}" if "moments" in scores.params else ""
        shown.add_row(str(number), name + over, f"{median:.4g}", f"{highest:.4g}", scores.status.value)
    return shown


def _correlations(table: ScoreTable) -> Table:
    import numpy as np

    shown = console.table("", *map(str, range(1, len(table.columns) + 1)))
    for number, row in enumerate(table.spearman(), start=1):
        shown.add_row(str(number), *("–" if np.isnan(value) else f"{value:.4f}" for value in row))
    return shown
