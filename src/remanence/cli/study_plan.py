"""What every `remanence study` command begins with: which studies, which store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.stages import Store
    from remanence.study.running import Planned

Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*", group="Study")
@dataclass(frozen=True)
class StudyOptions:
    """Which form of a study is meant, and where its artifacts are."""

    preset: str = "cpu"
    """Which of the file's presets: smoke, cpu, paper."""
    changes: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None
    """Change a setting, table.key=value; may be given several times."""
    store: Path | None = None
    """Where artifacts are kept; else REMANENCE_STORE, else a cache folder."""
    data_dir: Path | None = None
    """Where data sets lie; else REMANENCE_DATA."""


USUAL = StudyOptions()


def planned_studies(studies: Sequence[str], which: StudyOptions) -> tuple[list[Planned], Store]:
    """Check the studies and lay out their stages; and the store, which need not exist yet."""
    from remanence.stages import Store
    from remanence.study.catalog import load_study
    from remanence.study.running import plan, store_folder

    data_dir = None if which.data_dir is None else str(which.data_dir.expanduser().resolve())
    loaded = [load_study(name, which.preset, which.changes or (), data_dir=data_dir) for name in studies]
    return [plan(study) for study in loaded], Store(store_folder(which.store))


def export_to(planned: Sequence[Planned], store: Store, out: Path, which: StudyOptions) -> None:
    """Write pages, figures and tables; the overview too where there are several pages."""
    from remanence.study.export import export_study, write_overview

    for each in planned:
        console.note(f"Written: {export_study(each, store, out, which.changes or ())}")
    if len(planned) > 1 or (out / "studies.md").exists():
        console.note(f"Written: {write_overview(planned, store, out)}")


def result_document(planned: Planned, store: Store) -> dict[str, Any]:
    """What a study found, or that it has not been computed."""
    from remanence.study.running import result_of

    found = result_of(planned, store)
    base = {"name": planned.study.name, "preset": planned.study.preset, "title": planned.study.title}
    if found is None:
        return base | {"artifact": None}
    folder, document = found
    return base | {"artifact": str(folder.path), "digest": folder.digest(), **document}
