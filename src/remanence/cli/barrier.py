"""`remanence barrier`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Device, Json, Paths, Several

if TYPE_CHECKING:
    from remanence.audit.barrier_comparison import BarrierComparison

app = App(name="barrier")
Subset = Literal["train", "test", "forget", "retain"]
_MATCHED = {"none": "not matched", "weights": "matched by weights", "activations": "matched by activations"}


@app.default
def barrier(
    *runs: Path,
    oracles: Paths = None,
    before: Paths = None,
    after: Paths = None,
    forget: Path | None = None,
    match: Literal["weights", "activations", "none"] = "weights",
    on: Annotated[list[Subset] | None, Several] = None,
    points: int = 25,
    rounds: int = 3,
    examples: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure how far the loss rises on the straight line between two models, up to permutations of hidden units.

    Compares two runs or, with `--oracles`, every oracle with the runs before and after unlearning; the barriers among
    the oracles are the baseline. Hidden units are matched first. BatchNorm statistics are estimated again at every
    point of the line. With `--out`, finished pairs are kept, and an interrupted command continues.

    For example:

    `remanence barrier run other --match weights --on test`

    `remanence barrier --oracles oracle1 oracle2 --before run --after forgotten --forget hardest.json --out barriers`

    Parameters
    ----------
    runs:
        Two runs of one architecture.
    oracles:
        Runs that were trained without the forget set.
    before:
        Runs before unlearning.
    after:
        The same runs after unlearning.
    forget:
        The forget set; needed for the subsets forget and retain.
    match:
        Match hidden units by weights, by activations, or not at all.
    on:
        Subsets to measure on: train, test, forget, retain; by default all that are available.
    points:
        Number of evenly spaced points on the line, including both ends.
    rounds:
        Number of times that the spacing around the maximum is halved.
    examples:
        Use at most this many examples of forget, retain and test each; all by default.
    seed:
        Random seed of the matching and of the sample of examples.
    out:
        Folder for curves.csv, barriers.json, barriers.svg and the finished pairs.
    """
    from remanence.audit.barrier_comparison import compare_barriers
    from remanence.forgetting import read_forget_set_for
    from remanence.report import write_barriers
    from remanence.training import open_run

    sides = (
        [open_run(path, device=device) for path in paths or ()] for paths in (runs, oracles, before, after)
    )
    pair, opened_oracles, opened_before, opened_after = sides
    reference = next(iter([*pair, *opened_before, *opened_after]), None)
    forget_set = None if forget is None or reference is None else read_forget_set_for(forget, reference)
    with console.progress("Measuring barriers", show=not json) as progress:
        comparison = compare_barriers(
            pair,
            oracles=opened_oracles,
            before=opened_before,
            after=opened_after,
            forget_set=forget_set,
            match=match,
            on=on or (),
            points=points,
            rounds=rounds,
            examples=examples,
            seed=seed,
            out=out,
            progress=progress,
        )
    if out is not None:
        write_barriers(out, comparison)
    if json:
        console.print_json(comparison.document())
    else:
        _print(comparison, out)


def _print(comparison: BarrierComparison, out: Path | None) -> None:
    table = console.table("between", "on", "pairs", "barrier", "smallest", "largest", "above oracles")
    for row in comparison.summary:
        spread = f" ± {row['sd']:.4f}" if row["pairs"] > 1 else ""
        above = "–" if row["above_oracles"] is None else f"{row['above_oracles']:.0%}"
        ends = (f"{row[name]:.4f}" for name in ("smallest", "largest"))
        name = "the two" if row["kind"] == "pair" else row["kind"]
        table.add_row(name, row["subset"], str(row["pairs"]), f"{row['mean']:.4f}{spread}", *ends, above)
    console.out.print(table)
    lines = [
        f"Mean loss above the chord (a cross-entropy is in nats); hidden units {_MATCHED[comparison.match]}."
    ]
    if comparison.pairs[0].kind != "pair":
        lines += [
            "before, after: between an oracle and the model; oracles: between two oracles. above oracles: how often a "
            "barrier is higher than one between oracles; half the time if they are distributed alike."
        ]
    if out is not None:
        lines.append(f"{out}/curves.csv, barriers.json, barriers.svg")
    console.out.print("\n".join(lines), soft_wrap=True, markup=False)
