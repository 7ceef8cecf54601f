"""`remanence study …`: figures from one file each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.study.running import Planned
    from remanence.study.store import Store

app = App(name="study", help="Studies: every figure from one file, resumable, on a laptop or a cluster.")
Flag = Annotated[bool, Parameter(negative="")]
Set = Annotated[list[str] | None, Parameter(name="--set")]


@app.command(name="list")
def list_studies(*, json: Flag = False) -> None:
    """Name the studies that come with the package, with their presets.

    Example:

    `remanence study list`

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
    preset: str = "cpu",
    set_: Set = None,
    store: Path | None = None,
    data_dir: Path | None = None,
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
    preset:
        Which of the file's presets: smoke, cpu, paper.
    set_:
        Change a setting, table.key=value; may be given several times.
    store:
        Where artifacts are kept; else REMANENCE_STORE, else a cache folder.
    data_dir:
        Where data sets lie; else REMANENCE_DATA.
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
    from remanence.study.running import run_planned

    planned, place = _planned(studies, preset, set_, store, data_dir)
    count = (os.cpu_count() or 1) if workers is None else workers
    if dry_run:
        _show_plan(planned, place, count, json)
        return
    with LiveStages(count) as watcher:
        ran = run_planned(planned, place, executor=executor, workers=count, address=address, watcher=watcher)
    documents = [_document(each, place) for each in planned]
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
            f"{failure.stage.key} ({failure.stage.title}): {failure.sentence} Log: {failure.log}"
        )
    if ran.tally.failures:
        sys.exit(1)


def _planned(
    studies: Sequence[str],
    preset: str,
    overrides: Sequence[str] | None,
    store: Path | None,
    data_dir: Path | None,
) -> tuple[list[Planned], Store]:
    from remanence.study.catalog import load_study
    from remanence.study.running import plan, store_folder
    from remanence.study.store import Store

    if data_dir is not None:
        os.environ["REMANENCE_DATA"] = str(data_dir.expanduser().resolve())  # workers look there too
    loaded = [load_study(name, preset, overrides or ()) for name in studies]
    return [plan(each) for each in loaded], Store(store_folder(store))


def _show_plan(planned: Sequence[Planned], store: Store, workers: int, json: bool) -> None:
    from remanence.cli.study_view import plan_document, print_plan

    document = plan_document(planned, store, workers)
    if json:
        console.print_json(document)
    else:
        print_plan(document)


def _document(planned: Planned, store: Store) -> dict[str, Any]:
    from remanence.study.running import result_of

    found = result_of(planned, store)
    base = {"name": planned.study.name, "preset": planned.study.preset, "title": planned.study.title}
    if found is None:
        return base | {"artifact": None}
    folder, document = found
    return base | {"artifact": str(folder.path), "digest": folder.digest(), **document}


def _print_result(document: dict[str, Any]) -> None:
    console.out.print(f"\n{document['title']}  [{document['preset']}]", markup=False, soft_wrap=True)
    if document["artifact"] is None:
        console.out.print("  not finished", markup=False)
        return
    for verdict in document["verdicts"]:
        console.out.print(f"  {verdict['agreement']}: {verdict['saw']}", markup=False, soft_wrap=True)
    console.out.print(f"  {document['artifact']}", markup=False, soft_wrap=True)
