"""Export a study's result: a page, figures, tables, and every measurement as tidy rows."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence.errors import InputError
from remanence.report.markdown import overview_page, overview_row, result_page, row_name
from remanence.stages import Store, in_order
from remanence.storage import Folder, atomic
from remanence.study.provenance import count_seeds, provenance_of
from remanence.study.running import Planned, result_of

Row = Mapping[str, Any]


def export_study(planned: Planned, store: Store, out: Path, overrides: Sequence[str] = ()) -> Path:
    """Write OUT/NAME.md and OUT/NAME/ with figures, LaTeX tables and measurements; return the page's path.

    `results.csv` holds what the figure shows, `measurements.csv` every single measurement behind it; both as
    Parquet too where pyarrow is installed.
    """
    folder, document = finished(planned, store)
    name = planned.study.name
    beside = out / name
    beside.mkdir(parents=True, exist_ok=True)
    for file in folder.files():
        if file.startswith(("figures/", "tables/")):
            shutil.copyfile(folder.path / file, beside / Path(file).name)
    write_table(beside / "results", folder.rows("measurements"))
    write_table(beside / "measurements", list(all_measurements(planned, store)))
    figures = [Path(file).stem for file in folder.files() if file.endswith(".png")]
    page = result_page(planned.study, document, provenance_of(planned, store, overrides), name, figures)
    atomic.write_text(out / f"{name}.md", page)
    return out / f"{name}.md"


def export_studies(
    planned: Sequence[Planned], store: Store, out: Path, overrides: Sequence[str] = ()
) -> list[Path]:
    """Export finished studies, and an overview where there are several; return the paths of the pages."""
    pages = [export_study(entry, store, out, overrides) for entry in planned]
    if len(planned) > 1 or (out / "studies.md").exists():
        pages.append(write_overview(planned, store, out))
    return pages


def write_overview(planned: Sequence[Planned], store: Store, out: Path) -> Path:
    """Write OUT/studies.md: every study with the verdicts on its claims; return its path.

    Rows of other studies stay as long as their pages exist.
    """
    page = out / "studies.md"
    before = page.read_text().splitlines() if page.exists() else []
    lines = [line for line in before if (name := row_name(line)) and (out / f"{name}.md").exists()]
    rows = {entry.study.name: _overview_row(entry, store) for entry in planned}
    atomic.write_text(page, overview_page(rows, "\n".join(lines)))
    return page


def _overview_row(planned: Planned, store: Store) -> tuple[str, ...]:
    verdicts = finished(planned, store)[1]["verdicts"]
    return overview_row(planned.study.name, planned.study, count_seeds(in_order([planned.goal])), verdicts)


def finished(planned: Planned, store: Store) -> tuple[Folder, dict[str, Any]]:
    """A study's result; refused when it has not been computed."""
    result = result_of(planned, store)
    if result is None:
        study = planned.study
        raise InputError(
            f"{study.name} has not been computed with preset {study.preset} in {store.root}; run it first "
            "(`remanence study run`)."
        )
    return result


def all_measurements(planned: Planned, store: Store) -> Iterator[dict[str, Any]]:
    """Every measurement of every run that the figure is made of, with what tells the runs apart."""
    for role, stage in zip(planned.goal.roles, planned.goal.parts, strict=True):
        folder = store.get(stage)
        if folder.has("measurements.jsonl"):
            for row in folder.rows("measurements"):
                yield {"stage": stage.key, **role, **row}


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """PATH.csv, and PATH.parquet where pyarrow is installed; nothing when there are no rows."""
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic.write_text(path.with_suffix(".csv"), text.getvalue())
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    table = pyarrow.table({name: _column([row.get(name) for row in rows]) for name in columns})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    atomic.write_bytes(path.with_suffix(".parquet"), buffer.getvalue())


def _column(values: list[Any]) -> list[Any]:
    """One type a column: numbers stay numbers, a mixture becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 or kinds == {int, float}:
        return values
    return [None if value is None else str(value) for value in values]
