"""`remanence study export | diff | clean`: what to do with a store's artifacts."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remanence.cli import console
from remanence.cli.study_plan import USUAL, Flag, StudyOptions, export_to, planned_studies

if TYPE_CHECKING:
    from remanence.study.running import Planned


def export(
    studies: list[str],
    /,
    *,
    out: Path | None = None,
    which: StudyOptions = USUAL,
    tensorboard: Path | None = None,
    mlflow: str | None = None,
) -> None:
    """Write finished studies for others: page, figures (PNG, SVG, PDF), LaTeX tables, measurements (CSV, Parquet).

    Example:

    `remanence study export time-to-unlearn proxies --preset cpu --out docs/results`

    Parameters
    ----------
    studies:
        Paths of study files, or names.
    out:
        A folder: OUT/NAME.md and OUT/NAME/ are written.
    tensorboard:
        Write the measurements as TensorBoard runs into this folder.
    mlflow:
        Log the measurements to this MLflow tracking address, sqlite:///runs.db say.
    """
    from remanence.errors import InputError
    from remanence.study.sinks import to_mlflow, to_tensorboard

    if out is None and tensorboard is None and mlflow is None:
        raise InputError("Say where to write: --out, --tensorboard or --mlflow.")
    planned, place = planned_studies(studies, which)
    if out is not None:
        export_to(planned, place, out, which)
    for each in planned:
        if tensorboard is not None:
            console.note(f"{to_tensorboard(each, place, tensorboard)} runs written to {tensorboard}.")
        if mlflow is not None:
            console.note(f"{to_mlflow(each, place, mlflow)} runs logged to {mlflow}.")


def diff(
    studies: list[str],
    /,
    *,
    other: Path,
    which: StudyOptions = USUAL,
    json: Flag = False,
) -> None:
    """Say whether two stores hold the same bits for some studies. Exit code 1 when they do not.

    Example:

    `remanence study diff time-to-unlearn --preset smoke --store here --other there`

    Parameters
    ----------
    studies:
        Paths of study files, or names.
    other:
        The other store.
    json:
        Print one JSON document.
    """
    from dataclasses import asdict

    from remanence.stages.store import Store
    from remanence.study.store_cleaning import compare_stores

    planned, place = planned_studies(studies, which)
    found = compare_stores(planned, place, Store(other))
    identical = not (found.different or found.missing)
    if json:
        console.print_json({"identical": identical, **asdict(found)})
    else:
        for word, keys in (("differs", found.different), ("missing", found.missing)):
            for key in keys:
                console.out.print(f"{key}: {word}")
        console.out.print(f"{found.same} artifacts bit-identical" if identical else f"{found.same} identical")
    if not identical:
        sys.exit(1)


def clean(
    studies: list[str] | None = None,
    /,
    *,
    which: StudyOptions = USUAL,
    dry_run: Flag = False,
) -> None:
    """Remove damaged artifacts, those of older code and old logs, and what only the named studies need.

    What another study that comes with the package shares, with the same preset, stays; with --set, so does what
    the same study needs without it.

    Example:

    `remanence study clean --dry-run`

    `remanence study clean vit-small --preset cpu`

    Parameters
    ----------
    studies:
        Studies whose own artifacts are no longer wanted.
    dry_run:
        Only say what would go.
    """
    from remanence.study.store_cleaning import clean as remove

    planned, place = planned_studies(studies or [], which)
    others = _others({each.study.name for each in planned}, which) if planned else []
    going = remove(place, planned, others, really=not dry_run)
    word = "would go" if dry_run else "removed"
    for path in going:
        console.out.print(f"{path.name} {word}", markup=False)
    console.out.print(f"{len(going)} pieces {word}")


def _others(names: set[str], which: StudyOptions) -> list[Planned]:
    """What stays: other studies, as they are and with these changes; with changes, the named ones as they are too."""
    from remanence.errors import InputError
    from remanence.study.catalog import shipped

    found: list[Planned] = []
    for path in shipped():
        forms = [replace(which, changes=None)] if which.changes or path.stem not in names else []
        forms += [which] if which.changes and path.stem not in names else []
        for form in forms:
            with contextlib.suppress(InputError):  # what cannot be planned here has no artifacts here either
                found += planned_studies([str(path)], form)[0]
    return found
