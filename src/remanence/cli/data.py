"""`remanence data …`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.options import DataDir, Json
from remanence.cli.tables import TableOptions

app = App(
    name="data",
    help="""List the data sets, and check whether one can be read.

For example:

`remanence data list`

`remanence data check cifar10 --data-dir /data`""",
)
_TABLE = TableOptions()
_SHOWN = 20


@app.command(name="list")
def list_(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List the data sets, and show which of them are on this machine.

    For example:

    `remanence data list`
    """
    from remanence.data import data_folder, list_datasets

    datasets = list_datasets(data_dir)
    if json:
        rows = [asdict(dataset) for dataset in datasets]
        console.print_json({"data_dir": str(data_folder(data_dir)), "datasets": rows})
        return
    for dataset in datasets:
        state = (
            "ready"
            if dataset.ready
            else f"missing; get it from {dataset.home} and put it into {dataset.place}"
        )
        text = f"{dataset.name:<14} {dataset.about}\n{'':<14} {state}"
        console.out.print(text, soft_wrap=True, markup=False)
    console.out.print(
        "Also: the path of an .npz pack, of a folder of images, or of a .csv or .parquet table of features.",
        soft_wrap=True,
    )


@app.command
def check(
    source: Annotated[
        str, Parameter(help="Name of a data set, or the path of a pack, image folder or table.")
    ],
    /,
    *,
    data_dir: DataDir = None,
    table: TableOptions = _TABLE,
    json: Json = False,
) -> None:
    """Read a data set as training would, and show what is in it.

    For example:

    `remanence data check cifar10 --data-dir /data`

    `remanence data check patients.csv --label-column outcome --user-column patient --missing median`
    """
    from remanence.data import describe_dataset

    facts = describe_dataset(source, data_dir, table=table.make(source))
    if json:
        console.print_json(facts)
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    table = console.table("", "examples", "shape", "range", "ids", "digest")
    for name in ("train", "test"):
        part = facts[name]
        low, high = part["range"]
        shape = "×".join(map(str, part["shape"]))
        ids = f"{part['first_id']} … {part['last_id']}"
        table.add_row(name, f"{part['examples']:,}", shape, f"{low:g}..{high:g}", ids, part["digest"][:12])
    console.out.print(table)
    if facts["features"]:
        names = ", ".join(facts["features"][:_SHOWN])
        more = len(facts["features"]) - _SHOWN
        tail = f" and {more} more" if more > 0 else ""
        console.out.print(f"features: {names}{tail}", soft_wrap=True, markup=False)
    console.out.print(_labels(facts), soft_wrap=True, markup=False)


def _labels(facts: dict[str, Any]) -> str:
    if facts["target"] == "number":
        low, high = facts["train"]["label_range"]
        return f"the label is a number: {low:g}..{high:g} in the training examples"
    counts = ", ".join(f"{name} {count}" for name, count in facts["train"]["class_counts"].items())
    return f"training examples by class: {counts}"
