"""`remanence study …`: every figure from one file."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.exit_codes import ExitCode
from remanence.cli.options import Address, DataDir, Device, ExecutorName, Flag, Json, Workers

if TYPE_CHECKING:
    from remanence.stages import Store
    from remanence.study.running import Planned, StudyRun

app = App(
    name="study", help="Run studies: every figure from one file, resumable, on one machine or on a cluster."
)
Studies = Annotated[
    list[str], Parameter(help="Paths of study files, or names that `remanence study list` shows.")
]


@Parameter(name="*", group="Study")
@dataclass(frozen=True)
class StudyOptions:
    """Which variant of the studies, and where their artifacts are."""

    preset: str = "cpu"
    """Preset of the study file: smoke, cpu, paper."""
    overrides: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = ()
    """Change a setting, table.key=value; may be given several times."""
    store: Path | None = None
    """Folder of the artifacts; by default $REMANENCE_STORE, else a cache folder."""
    data_dir: DataDir = None
    device: Device = "auto"

    def plan(self, names: list[str]) -> list[Planned]:
        """The studies of these names, checked, with their stages."""
        from remanence.study.running import plan_studies

        return plan_studies(names, self.preset, self.overrides, data_dir=self.data_dir, device=self.device)

    def open_store(self) -> Store:
        """The store, which need not exist yet."""
        from remanence.stages import Store
        from remanence.study.running import store_folder

        return Store(store_folder(self.store))


_DEFAULT = StudyOptions()


@app.command(name="list")
def list_studies(*, json: Json = False) -> None:
    """List the studies that come with the package, and their presets.

    For example:

    `remanence study list`
    """
    from remanence.study.catalog import list_studies

    studies = list_studies()
    if json:
        console.print_json({"studies": [asdict(study) for study in studies]})
        return
    width = max(len(study.name) for study in studies)
    for study in studies:
        presets = ", ".join(study.presets)
        console.out.print(f"{study.name:{width}}  {study.title}  ({presets})", soft_wrap=True)


@app.command
def run(
    studies: Studies,
    /,
    *,
    options: StudyOptions = _DEFAULT,
    executor: ExecutorName = "process",
    address: Address = None,
    workers: Workers = None,
    out: Path | None = None,
    dry_run: Flag = False,
    json: Json = False,
) -> None:
    """Compute the missing stages of one or several studies, and show the results.

    If it is interrupted, the same command continues. Run again, it computes nothing.

    For example:

    `remanence study run studies/time-to-unlearn.toml --preset smoke --executor process`

    `remanence study run proxies hardest --preset cpu --set train.epochs=20 --dry-run`

    Parameters
    ----------
    out:
        Also write the pages, figures and tables of finished studies to this folder.
    dry_run:
        Only print the stages to compute and the expected time.
    """
    from remanence.cli.study_view import LiveStages, print_plan
    from remanence.study.cost_estimate import cost_document
    from remanence.study.running import result_document, run_planned, worker_count

    count = worker_count(workers)
    planned, store = options.plan(studies), options.open_store()
    if dry_run:
        document = cost_document(planned, store, count)
        if json:
            console.print_json(document)
        else:
            print_plan(document)
        return
    _mention_outdated(store)
    with LiveStages(count) as watcher:
        study_run = run_planned(
            planned, store, executor=executor, workers=count, address=address, watcher=watcher
        )
    results = [result_document(entry, store) for entry in planned]
    if out is not None:
        _export_finished(planned, results, store, out, options)
    if json:
        console.print_json({"studies": results, **study_run.document()})
    else:
        _print_run(results, study_run, store)
    for failure in study_run.tally.failures:
        console.print_error(
            f"{failure.stage.key} ({failure.stage.title}): {failure.message} Log: {failure.log}"
        )
    if study_run.tally.failures:
        sys.exit(ExitCode.FAILED)


@app.command
def status(studies: Studies, /, *, options: StudyOptions = _DEFAULT, json: Json = False) -> None:
    """Show how many stages of some studies are finished, and how long they took.

    For example:

    `remanence study status time-to-unlearn hardest --preset cpu`
    """
    from remanence.cli.study_view import duration
    from remanence.study.running import study_status

    planned, store = options.plan(studies), options.open_store()
    statuses = [study_status(entry, store) for entry in planned]
    if json:
        rows = [asdict(status) for status in statuses]
        console.print_json({"store": str(store.root), "preset": options.preset, "studies": rows})
        return
    for status in statuses:
        kinds = f" ({', '.join(status.missing_kinds)})" if status.missing else ""
        time = f"{duration(status.core_seconds)} of computing time"
        text = f"{status.name}: {status.done} stages finished, {status.missing} missing{kinds}; {time}"
        console.out.print(text, soft_wrap=True, markup=False)


@app.command
def show(
    study: Annotated[str, Parameter(help="Path of a study file, or a name.")],
    /,
    *,
    options: StudyOptions = _DEFAULT,
    json: Json = False,
) -> None:
    """Show the result of a finished study: each claim, our numbers, the verdict, and the tables.

    The JSON document contains every number of the figure.

    For example:

    `remanence study show proxies --preset smoke`
    """
    from remanence.cli.study_view import print_tables
    from remanence.report.markdown import claim_cells
    from remanence.study.export import finished
    from remanence.study.running import result_document

    (planned,), store = options.plan([study]), options.open_store()
    finished(planned, store)
    document = result_document(planned, store)
    if json:
        console.print_json(document)
        return
    console.out.print(f"{document['title']}  [{options.preset}]", markup=False, soft_wrap=True)
    for verdict in document["verdicts"]:
        effect, p = claim_cells(verdict)
        lines = [
            f"\nclaim    {verdict['claim']}",
            f"result   {verdict['saw']}",
            f"effect   {effect}",
            f"p        {p}",
            f"verdict  {verdict['agreement']}. {verdict['why_undecided']}".rstrip(". "),
        ]
        console.out.print("\n".join(lines), markup=False, soft_wrap=True)
    print_tables(document["tables"])
    console.out.print(document["artifact"], markup=False, soft_wrap=True)


@app.command
def export(
    studies: Studies,
    /,
    *,
    out: Path | None = None,
    options: StudyOptions = _DEFAULT,
    tensorboard: Path | None = None,
    mlflow: str | None = None,
) -> None:
    """Export finished studies: page, figures (PNG, SVG, PDF), LaTeX tables, measurements (CSV, Parquet).

    For example:

    `remanence study export time-to-unlearn proxies --preset cpu --out docs/results`

    Parameters
    ----------
    out:
        Folder for the pages; OUT/NAME.md and OUT/NAME/ are written.
    tensorboard:
        Write the measurements as TensorBoard runs into this folder.
    mlflow:
        Log the measurements to this MLflow tracking address, for example sqlite:///runs.db.
    """
    from remanence.errors import InputError
    from remanence.study.export import export_studies
    from remanence.study.sinks import to_mlflow, to_tensorboard

    if out is None and tensorboard is None and mlflow is None:
        raise InputError("Expected at least one of `out`, `tensorboard` and `mlflow`; got none.")
    planned, store = options.plan(studies), options.open_store()
    if out is not None:
        for page in export_studies(planned, store, out, options.overrides):
            console.note(f"Written: {page}")
    for entry in planned:
        if tensorboard is not None:
            console.note(f"{to_tensorboard(entry, store, tensorboard)} runs written to {tensorboard}.")
        if mlflow is not None:
            console.note(f"{to_mlflow(entry, store, mlflow)} runs logged to {mlflow}.")


@app.command
def diff(studies: Studies, /, *, other: Path, options: StudyOptions = _DEFAULT, json: Json = False) -> None:
    """Compare the artifacts of some studies in two stores, bit by bit. Exit code 1 when they differ.

    For example:

    `remanence study diff time-to-unlearn --preset smoke --store here --other there`

    Parameters
    ----------
    other:
        Folder of the other store.
    """
    from remanence.stages import Store
    from remanence.study.store_cleaning import compare_stores

    comparison = compare_stores(options.plan(studies), options.open_store(), Store(other))
    if json:
        console.print_json({"identical": comparison.identical, **asdict(comparison)})
    else:
        for word, keys in (("differs", comparison.different), ("missing", comparison.missing)):
            for key in keys:
                console.out.print(f"{key}: {word}")
        same = "artifacts bit-identical" if comparison.identical else "identical"
        console.out.print(f"{comparison.same} {same}")
    if not comparison.identical:
        sys.exit(ExitCode.FAILED)


@app.command
def clean(
    studies: Annotated[
        list[str] | None, Parameter(help="Studies whose artifacts are no longer needed.")
    ] = None,
    /,
    *,
    options: StudyOptions = _DEFAULT,
    dry_run: Flag = False,
) -> None:
    """Remove damaged artifacts, artifacts of older code, old logs, and artifacts that only the named studies use.

    Artifacts that another study of the package uses with the same preset stay. With --set, the artifacts of the named
    studies without it stay too.

    For example:

    `remanence study clean --dry-run`

    `remanence study clean vit-small --preset cpu`

    Parameters
    ----------
    dry_run:
        Only list what would be removed.
    """
    from remanence.study.store_cleaning import clean_studies

    removed = clean_studies(
        options.open_store(),
        studies or (),
        options.preset,
        options.overrides,
        data_dir=options.data_dir,
        really=not dry_run,
    )
    word = "would be removed" if dry_run else "removed"
    for path in removed:
        console.out.print(f"{path.name} {word}", markup=False)
    console.out.print(f"{len(removed)} artifacts and logs {word}")


def _mention_outdated(store: Store) -> None:
    from remanence.study.outdated_artifacts import outdated

    if old := len(outdated(store)):
        subject = "1 artifact in the store is" if old == 1 else f"{old} artifacts in the store are"
        console.note(
            f"{subject} of older code and not used; `remanence study clean --dry-run` lists what can be removed."
        )


def _export_finished(
    planned: list[Planned], results: list[dict[str, Any]], store: Store, out: Path, options: StudyOptions
) -> None:
    from remanence.study.export import export_studies

    by_state: dict[bool, list[Planned]] = {True: [], False: []}
    for entry, result in zip(planned, results, strict=True):
        by_state[result["artifact"] is not None].append(entry)
    for page in export_studies(by_state[True], store, out, options.overrides) if by_state[True] else ():
        console.note(f"Written: {page}")
    for entry in by_state[False]:
        console.note(f"{entry.study.name} is not finished; no page was written for it.")


def _print_run(results: list[dict[str, Any]], study_run: StudyRun, store: Store) -> None:
    for result in results:
        console.out.print(f"\n{result['title']}  [{result['preset']}]", markup=False, soft_wrap=True)
        if result["artifact"] is None:
            console.out.print("  not finished", markup=False)
            continue
        for verdict in result["verdicts"]:
            console.out.print(f"  {verdict['agreement']}: {verdict['saw']}", markup=False, soft_wrap=True)
        console.out.print(f"  {result['artifact']}", markup=False, soft_wrap=True)
    tally = study_run.tally
    console.out.print(
        f"{tally.computed} computed, {tally.reused} reused, {len(tally.failures)} failed, "
        f"{tally.blocked} blocked; {study_run.seconds:.0f} s. The store is {store.root}.",
        soft_wrap=True,
    )
