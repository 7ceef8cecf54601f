"""`remanence barrier`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.table import Table

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.audit.run_barriers import Pair, PairBarriers
    from remanence.training import Run

app = App(name="barrier")
Flag = Annotated[bool, Parameter(negative="")]
Several = Parameter(consume_multiple=True, negative="")
Subset = Literal["train", "test", "forget", "retain"]


@app.default
def barrier(
    *runs: Path,
    oracles: Annotated[list[Path] | None, Several] = None,
    before: Annotated[list[Path] | None, Several] = None,
    after: Annotated[list[Path] | None, Several] = None,
    forget: Path | None = None,
    match: Literal["weights", "activations", "none"] = "weights",
    on: Annotated[list[Subset] | None, Several] = None,
    points: int = 25,
    rounds: int = 3,
    examples: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    json: Flag = False,
) -> None:
    """Measure how far the loss rises on the straight line between two models, modulo permutation of hidden units.

    Either between two runs, or, with `--oracles`, between every oracle and the runs before and after unlearning, with
    the oracles among themselves as the baseline. Hidden units are matched first; BatchNorm's statistics are estimated
    anew at every place on the line.

    Example:

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
        The same after unlearning.
    forget:
        The forget set; with it, barriers on forget and retain can be taken too.
    match:
        Match hidden units by weights, by activations, or not at all.
    on:
        Subsets: train, test, forget, retain. By default all that can be.
    points:
        Places on an even grid, the ends among them.
    rounds:
        How often the spacing around the maximum is then halved.
    examples:
        Take at most so many of forget, retain and test each.
    seed:
        Of the matching, and of the draw of examples.
    out:
        A folder for curves.csv, barriers.json and barriers.svg. Finished pairs are kept there: the same command goes on
        after a kill.
    json:
        Print one JSON document.
    """
    from remanence.audit.run_barriers import BarrierSettings, barriers_of, summary
    from remanence.errors import InputError
    from remanence.forgetting import read_forget_set_for
    from remanence.storage.lock import exclusive

    pairs, reference = _pairs(runs, oracles or [], before or [], after or [])
    chosen = None if forget is None else read_forget_set_for(forget, reference)
    if chosen is not None:
        _refuse_trained_oracles(pairs, chosen)
    default = ("train", "test") if chosen is None else ("train", "test", "forget", "retain")
    settings = BarrierSettings(match, tuple(dict.fromkeys(on or default)), points, rounds, examples, seed)
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; --out must be a folder.")
    with console.progress_bar(show=not json) as bar:
        task = bar.add_task("Walking from model to model", total=len(pairs))
        found = barriers_of(
            pairs,
            reference,
            chosen,
            settings,
            cache=out,
            progress=lambda done, place, places: bar.update(task, completed=done + place / places),
        )
    rows = summary(found)
    document = _document(found, rows, match, None if chosen is None else chosen.name)
    if out is not None:
        with exclusive(out / ".lock", f"Another process is writing to {out}; wait for it."):
            _write(out, document)
    if json:
        console.print_json(document)
    else:
        _print(document, out)


def _pairs(
    runs: tuple[Path, ...], oracles: list[Path], before: list[Path], after: list[Path]
) -> tuple[list[Pair], Run]:
    from remanence.audit.run_barriers import Pair, oracle_pairs
    from remanence.errors import InputError
    from remanence.training import open_run

    if oracles:
        if runs or not (before or after):
            raise InputError("With --oracles, give the models by --before and --after, and no others.")
        firsts, thens, judges = ([open_run(each) for each in side] for side in (before, after, oracles))
        return oracle_pairs(firsts, thens, judges), (firsts or thens)[0]
    if len(runs) != 2 or before or after:
        raise InputError(
            f"Give two runs, or --oracles with --before and --after; got {len(runs)} runs and no oracles."
        )
    a, b = (open_run(each) for each in runs)
    return [Pair("pair", a, b)], a


def _refuse_trained_oracles(pairs: list[Pair], forget: Any) -> None:
    from remanence.audit.auditing import check_oracles

    check_oracles([pair.a for pair in pairs if pair.kind in ("before", "after")], forget)


def _document(
    found: list[PairBarriers], rows: list[dict[str, Any]], match: str, forget: str | None
) -> dict[str, Any]:
    return {
        "match": match,
        "forget": forget,
        "summary": rows,
        "pairs": [
            {
                "kind": pair.kind,
                "a": pair.a,
                "b": pair.b,
                "curves": {
                    subset: {
                        "barrier": each.value,
                        "place": each.place,
                        "places": each.places.tolist(),
                        "losses": each.losses.tolist(),
                        "rise": each.rise.tolist(),
                    }
                    for subset, each in pair.curves.items()
                },
            }
            for pair in found
        ],
    }


def _write(out: Path, document: dict[str, Any]) -> None:
    import csv
    import io
    import json

    from remanence.report import barrier_figure, save_figure
    from remanence.storage import atomic

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["kind", "a", "b", "subset", "place", "loss", "rise"])
    for pair in document["pairs"]:
        for subset, curve in pair["curves"].items():
            for row in zip(curve["places"], curve["losses"], curve["rise"], strict=True):
                writer.writerow([pair["kind"], pair["a"], pair["b"], subset, *row])
    atomic.write_text(out / "curves.csv", table.getvalue())
    atomic.write_text(out / "barriers.json", json.dumps(document, indent=2, allow_nan=False) + "\n")
    save_figure(barrier_figure(document["pairs"], document["summary"]), out / "barriers.svg")


def _print(document: dict[str, Any], out: Path | None) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("between", "on", "pairs", "barrier", "smallest", "largest", "above oracles"):
        table.add_column(heading, no_wrap=True)
    for row in document["summary"]:
        spread = f" ± {row['sd']:.4f}" if row["pairs"] > 1 else ""
        above = "–" if row["above_oracles"] is None else f"{row['above_oracles']:.0%}"
        ends = (f"{row[name]:.4f}" for name in ("smallest", "largest"))
        name = "the two" if row["kind"] == "pair" else row["kind"]
        table.add_row(name, row["subset"], str(row["pairs"]), f"{row['mean']:.4f}{spread}", *ends, above)
    console.out.print(table)
    how = {"none": "as they are", "weights": "matched by weights", "activations": "matched by activations"}
    lines = [f"Nats of cross-entropy above the chord; hidden units {how[document['match']]}."]
    if document["pairs"][0]["kind"] != "pair":
        lines += [
            "before, after: between an oracle and the model; oracles: between two of them. above oracles: how often a "
            "barrier is higher than one between oracles; half the time if they are distributed alike."
        ]
    if out is not None:
        lines.append(f"{out}/curves.csv, barriers.json, barriers.svg")
    console.out.print("\n".join(lines), soft_wrap=True, markup=False)
