"""`remanence data`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.data import Examples

app = App(
    name="data",
    help="""Which data sets there are, and whether one can be read.

Example:

`remanence data list`

`remanence data check cifar10 --data-dir /data`""",
)
Flag = Annotated[bool, Parameter(negative="")]


@app.command(name="list")
def list_(*, data_dir: Path | None = None, json: Flag = False) -> None:
    """Name the data sets and say which of them are on this machine.

    Example:

    `remanence data list`

    Parameters
    ----------
    data_dir:
        Folder of the data sets; $REMANENCE_DATA, else ~/.cache/remanence.
    json:
        Print one JSON document.
    """
    from remanence.data import DATASETS, SOURCES, data_folder

    root = data_folder(data_dir)
    rows = []
    for name in DATASETS:
        source = SOURCES.get(name)
        rows.append(
            {
                "name": name,
                "about": source.about
                if source
                else "1,297 + 500 handwritten digits, 8×8 grey, from scikit-learn",
                "ready": source is None or source.present(root),
                "place": str(root / source.folders[0]) if source else "scikit-learn",
                "home": source.home if source else None,
            }
        )
    if json:
        console.print_json({"data_dir": str(root), "datasets": rows})
        return
    for row in rows:
        state = "ready" if row["ready"] else f"not here; from {row['home']} into {row['place']}"
        console.out.print(f"{row['name']:<14} {row['about']}\n{'':<14} {state}", soft_wrap=True, markup=False)
    console.out.print(
        "Also: the path of an .npz pack, of a folder of pictures, of a .csv or .parquet table of features.",
        soft_wrap=True,
    )


@app.command
def check(source: str, /, *, data_dir: Path | None = None, json: Flag = False) -> None:
    """Read a data set as training would and say what is in it.

    Example:

    `remanence data check cifar10 --data-dir /data`

    `remanence data check patients.csv --json`

    Parameters
    ----------
    source:
        A data set's name, or the path of a pack, a folder of pictures or a table.
    data_dir:
        Folder of the named data sets; $REMANENCE_DATA, else ~/.cache/remanence.
    json:
        Print one JSON document.
    """
    from remanence.data import load_dataset

    parts = dict(zip(("train", "test"), load_dataset(source, data_dir), strict=True))
    facts: dict[str, Any] = {
        "data": source,
        "classes": list(parts["train"].class_names),
        **{name: _facts(part) for name, part in parts.items()},
    }
    if json:
        console.print_json(facts)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("", "examples", "shape", "range", "ids", "digest"):
        table.add_column(heading, no_wrap=True)
    for name in parts:
        part = facts[name]
        low, high = part["range"]
        shape = "×".join(map(str, part["shape"]))
        ids = f"{part['first_id']} … {part['last_id']}"
        table.add_row(name, f"{part['examples']:,}", shape, f"{low:g}..{high:g}", ids, part["digest"][:12])
    console.out.print(table)
    counts = ", ".join(f"{name} {count}" for name, count in facts["train"]["class_counts"].items())
    console.out.print(f"training examples by class: {counts}", soft_wrap=True, markup=False)


def _facts(examples: Examples) -> dict[str, Any]:
    counts = examples.labels.bincount(minlength=len(examples.class_names)).tolist()
    return {
        "examples": len(examples),
        "shape": list(examples.input_shape),
        "range": [float(examples.inputs.min()), float(examples.inputs.max())],
        "class_counts": dict(zip(examples.class_names, counts, strict=True)),
        "first_id": examples.ids[0].item(),
        "last_id": examples.ids[-1].item(),
        "digest": examples.digest(),
    }
