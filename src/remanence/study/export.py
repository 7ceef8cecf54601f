"""Export a study's result: a page, figures, tables, and every measurement as tidy rows."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remanence.errors import InputError
from remanence.report.claims_figure import claims_figure
from remanence.report.claims_page import FIGURE, HEADING, claims_page
from remanence.report.drawing import save_figure
from remanence.report.markdown import result_page
from remanence.stages import Store, in_order
from remanence.storage import Folder, atomic
from remanence.storage.parsing import parse_json, read_file
from remanence.study.catalog import load_study, shipped
from remanence.study.deciding_cost import deciding_cost
from remanence.study.provenance import Provenance, count_seeds, provenance_of
from remanence.study.running import Planned, result_of
from remanence.study.settings import Study
from remanence.study.significance import LEVEL

Row = Mapping[str, Any]
VERDICTS = "verdicts.json"


def export_study(planned: Planned, store: Store, out: Path, overrides: Sequence[str] = ()) -> Path:
    """Write OUT/NAME.md and OUT/NAME/ with figures, LaTeX tables, verdicts and measurements; return the page's path.

    With another preset than cpu, NAME ends in it: the same study at several sizes makes several pages.
    `results.csv` holds what the figure shows, `measurements.csv` every single measurement behind it; both as
    Parquet too where pyarrow is installed.
    """
    folder, document = finished(planned, store)
    name = page_name(planned.study)
    beside = out / name
    beside.mkdir(parents=True, exist_ok=True)
    for file in folder.files():
        if file.startswith(("figures/", "tables/")):
            shutil.copyfile(folder.path / file, beside / Path(file).name)
    write_table(beside / "results", folder.rows("measurements"))
    write_table(beside / "measurements", list(all_measurements(planned, store)))
    provenance = provenance_of(planned, store, overrides)
    atomic.write_json(beside / VERDICTS, _claims(planned, document, provenance))
    figures = [Path(file).stem for file in folder.files() if file.endswith(".png")]
    page = result_page(planned.study, document, provenance, name, figures)
    atomic.write_text(out / f"{name}.md", page)
    return out / f"{name}.md"


def export_studies(
    planned: Sequence[Planned], store: Store, out: Path, overrides: Sequence[str] = ()
) -> list[Path]:
    """Export finished studies, and an overview where there are several; return the paths of the pages."""
    pages = [export_study(entry, store, out, overrides) for entry in planned]
    index = out / "index.md"
    if (index.exists() and index.read_text().startswith(HEADING)) or (
        len(planned) > 1 and not index.exists()
    ):
        pages.append(write_index(out))
    return pages


def write_index(out: Path) -> Path:
    """Write OUT/index.md: every claim of every exported study in one figure and one table; return its path."""
    documents = {
        path.parent.name: parse_json(read_file(path), path) for path in sorted(out.glob(f"*/{VERDICTS}"))
    }
    pages = [path.stem for path in shipped() if (out / f"{path.stem}.md").exists()]
    without = {name: load_study(name).title for name in pages if name not in documents}
    if documents:
        save_figure(claims_figure(list(documents.values()), LEVEL), out / FIGURE)
    costs = [
        [deciding_cost(document, verdict) for verdict in document["verdicts"]]
        for document in documents.values()
    ]
    atomic.write_text(out / "index.md", claims_page(list(documents.values()), costs, without))
    return out / "index.md"


def page_name(study: Study) -> str:
    """The name of a study's page."""
    return study.name if study.preset == "cpu" else f"{study.name}-{study.preset}"


def _claims(planned: Planned, document: Mapping[str, Any], provenance: Provenance) -> dict[str, Any]:
    """What the table of all claims shows of a study."""
    study = planned.study
    options = study.model.options
    width = f", width {options['width']}" if "width" in options else ""
    return {
        "name": page_name(study),
        "title": study.title,
        "preset": study.preset,
        "seeds": count_seeds(in_order([planned.goal]), study.seed_numbers),
        "network": f"{study.model.name}{width}, {study.data.source}",
        "core_seconds": provenance.core_seconds,
        "verdicts": document["verdicts"],
    }


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
