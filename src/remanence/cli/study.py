"""`remanence study …`: figures from one file each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from remanence.cli import console
from remanence.cli.study_plan import USUAL, Flag, StudyOptions, export_to, planned_studies, result_document
from remanence.cli.study_store import clean, diff, export

if TYPE_CHECKING:
    from remanence.stages.store import Store
    from remanence.study.running import Planned

app = App(name="study", help="Studies: every figure from one file, resumable, on a laptop or a cluster.")
for command in (export, diff, clean):
    app.command(command)


@app.command(name="list")
def list_studies(*, json: Flag = False) -> None:
    """Name the studies that come with the package, with their presets.

    For example: `remanence study list`

    Parameters
    ----------
    json:
        Print one JSON document.
    """
    from remanence.study.catalog import load_study, presets_of, shipped

    found = [
        {
            "name": path.stem,
            "title": load_study(str(path)).title,
            "presets": presets_of(path),
            "path": str(path),
        }
        for path in shipped()
    ]
    if json:
        console.print_json({"studies": found})
        return
    width = max(len(str(each["name"])) for each in found)
    for each in found:
        presets = ", ".join(each["presets"])
        console.out.print(f"{each['name']:{width}}  {each['title']}  ({presets})", soft_wrap=True)


@app.command
def run(
    studies: list[str],
    /,
    *,
    which: StudyOptions = USUAL,
    executor: Literal["process", "ray"] = "process",
    address: str | None = None,
    workers: int | None = None,
    out: Path | None = None,
    dry_run: Flag = False,
    json: Flag = False,
) -> None:
    """Compute what is missing of one or several studies, and show what they say.

    Killed at any moment, the same command goes on. Run again, it computes nothing.

    Example:

    `remanence study run studies/time-to-unlearn.toml --preset smoke --executor process`

    `remanence study run proxies hardest --preset cpu --set train.epochs=20 --dry-run`

    Parameters
    ----------
    studies:
        Paths of study files, or names that `remanence study list` shows.
    executor:
        Who computes: processes of this machine, or Ray.
    address:
        Of a running Ray cluster; without it Ray starts on this machine.
    workers:
        How many stages at once; by default as many as there are cores.
    out:
        Write the pages, figures and tables here too.
    dry_run:
        Only say what would be done and how long it would take.
    json:
        Print one JSON document, with the counts computed, reused and failed.
    """
    from remanence.cli.study_view import LiveStages, tally_document
    from remanence.errors import InputError
    from remanence.study.running import run_planned

    count = (os.cpu_count() or 1) if workers is None else workers
    if count < 1:
        raise InputError(f"`workers` must be at least 1; got {count}.")
    planned, place = planned_studies(studies, which)
    if dry_run:
        _show_plan(planned, place, count, json)
        return
    _tell_outdated(place)
    with LiveStages(count) as watcher:
        ran = run_planned(planned, place, executor=executor, workers=count, address=address, watcher=watcher)
    documents = [result_document(each, place) for each in planned]
    if out is not None:
        _write_finished(planned, documents, place, out, which)
    if json:
        console.print_json({"studies": documents, **tally_document(ran)})
    else:
        for each in documents:
            _print_result(each)
        counts = tally_document(ran)
        console.out.print(
            f"{counts['computed']} computed, {counts['reused']} reused, {counts['failed']} failed, "
            f"{counts['blocked']} blocked; {ran.seconds:.0f} s. The store is {place.root}.",
            soft_wrap=True,
        )
    for failure in ran.tally.failures:
        console.print_error(
            f"{failure.stage.key} ({failure.stage.title}): {failure.message} Log: {failure.log}"
        )
    if ran.tally.failures:
        sys.exit(1)


@app.command
def status(
    studies: list[str],
    /,
    *,
    which: StudyOptions = USUAL,
    json: Flag = False,
) -> None:
    """Say how much of some studies is there, and what it took.

    Example:

    `remanence study status time-to-unlearn hardest --preset cpu`

    Parameters
    ----------
    studies:
        Paths of study files, or names.
    json:
        Print one JSON document.
    """
    from remanence.cli.study_view import duration
    from remanence.stages.stage import in_order
    from remanence.stages.timings import Timings

    planned, place = planned_studies(studies, which)
    found: list[dict[str, Any]] = []
    for each in planned:
        there, todo = place.survey([each.goal])
        entries = Timings(place.root).read(in_order([each.goal]))
        seconds = sum(entry.seconds for entry in entries.values())
        kinds = sorted({stage.kind for stage in todo})
        found.append(
            {
                "name": each.study.name,
                "done": len(there),
                "missing": len(todo),
                "missing_kinds": kinds,
                "core_seconds": round(seconds, 1),
            }
        )
    if json:
        console.print_json({"store": str(place.root), "preset": which.preset, "studies": found})
        return
    for line in found:
        what = f" ({', '.join(line['missing_kinds'])})" if line["missing"] else ""
        took = duration(line["core_seconds"])
        text = f"{line['name']}: {line['done']} stages done, {line['missing']} missing{what}; {took} of work"
        console.out.print(text, soft_wrap=True, markup=False)


@app.command
def show(
    study: str,
    /,
    *,
    which: StudyOptions = USUAL,
    json: Flag = False,
) -> None:
    """Show what a finished study found: each claim, what was seen, whether they agree, and the tables.

    Example:

    `remanence study show proxies --preset smoke`

    Parameters
    ----------
    study:
        Path of a study file, or a name.
    json:
        Print one JSON document with every number of the figure.
    """
    from remanence.cli.study_view import print_tables
    from remanence.study.export import finished

    (planned,), place = planned_studies([study], which)
    finished(planned, place)
    document = result_document(planned, place)
    if json:
        console.print_json(document)
        return
    console.out.print(f"{document['title']}  [{which.preset}]", markup=False, soft_wrap=True)
    for verdict in document["verdicts"]:
        text = f"\nclaim    {verdict['claim']}\nsaw      {verdict['saw']}\nverdict  {verdict['agreement']}"
        console.out.print(text, markup=False, soft_wrap=True)
    print_tables(document["tables"])
    console.out.print(document["artifact"], markup=False, soft_wrap=True)


def _show_plan(planned: Sequence[Planned], store: Store, workers: int, json: bool) -> None:
    from remanence.cli.study_view import plan_document, print_plan

    document = plan_document(planned, store, workers)
    if json:
        console.print_json(document)
    else:
        print_plan(document)


def _tell_outdated(store: Store) -> None:
    from remanence.study.outdated_artifacts import outdated

    if old := len(outdated(store)):
        what = "1 artifact in the store is" if old == 1 else f"{old} artifacts in the store are"
        console.note(
            f"{what} of older code and not used; `remanence study clean --dry-run` shows what can go."
        )


def _write_finished(
    planned: Sequence[Planned],
    documents: Sequence[dict[str, Any]],
    store: Store,
    out: Path,
    which: StudyOptions,
) -> None:
    """The pages of those that came to an end; of the others it is said that they have none."""
    done = [each for each, found in zip(planned, documents, strict=True) if found["artifact"] is not None]
    if done:
        export_to(done, store, out, which)
    for each in planned:
        if each not in done:
            console.note(f"{each.study.name} is not finished; no page was written for it.")


def _print_result(document: dict[str, Any]) -> None:
    console.out.print(f"\n{document['title']}  [{document['preset']}]", markup=False, soft_wrap=True)
    if document["artifact"] is None:
        console.out.print("  not finished", markup=False)
        return
    for verdict in document["verdicts"]:
        console.out.print(f"  {verdict['agreement']}: {verdict['saw']}", markup=False, soft_wrap=True)
    console.out.print(f"  {document['artifact']}", markup=False, soft_wrap=True)
