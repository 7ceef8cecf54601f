"""`remanence train`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import (
    CheckpointEvery,
    Data,
    DataDir,
    DefaultModel,
    Device,
    Flag,
    Json,
    ModelOptions,
    Resume,
    Sigma,
    TaskPath,
)
from remanence.cli.recipes import RecipeOptions
from remanence.cli.tables import TableOptions

app = App(name="train")
_RECIPE = RecipeOptions()
_TABLE = TableOptions()


@app.default
def train(
    *,
    out: Path,
    data: Data = "",
    task: TaskPath = None,
    model: DefaultModel = None,
    data_dir: DataDir = None,
    table: TableOptions = _TABLE,
    width: int | None = None,
    options: ModelOptions = None,
    recipe: RecipeOptions = _RECIPE,
    seed: int = 0,
    record: int = 35,
    placement: Literal["even", "log", "adaptive"] = "adaptive",
    sigma: Sigma = 0.1,
    checkpoint_every: CheckpointEvery = 0,
    keep_checkpoints: Flag = False,
    without: Path | None = None,
    poison: Path | None = None,
    poison_variance: float = 0.062,
    canaries: Path | None = None,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a model and record the gradient norm of each example.

    Writes a run folder: settings, weights, test accuracy after each epoch, and the trace that scores are computed from.
    If the run is interrupted, `--resume` continues from the last checkpoint and ends with the same bits. Under torchrun
    the processes share the work.

    For example:

    `remanence train --data digits --model resnet18 --width 8 --epochs 3 --record 12 --out run`

    `remanence train --data patients.csv --label-column outcome --user-column patient --missing median --out run`

    `remanence train --task mine.training:task --out run`

    `torchrun --nproc-per-node 2 -m remanence train --data digits --model mlp --out run`

    Parameters
    ----------
    out:
        Folder of the run; new or empty, or an unfinished run with --resume.
    width:
        Width of the model, if it has one.
    seed:
        Random seed for the initialization, the batch order, the augmentation and the noise.
    record:
        Number of checkpoints in the trace, the largest number with `adaptive`; 0 for no trace.
    placement:
        When to record: `adaptive` records when something has changed, `even` is the paper's, `log` is dense early.
    keep_checkpoints:
        Keep all checkpoints of the run's state, not only the last.
    without:
        A forget set to leave out of training: the run is then an oracle for it.
    poison:
        A forget set whose inputs get Gaussian noise; the noise is kept with the run, so that the metric `gus` can
        look for it.
    poison_variance:
        Variance of that noise, on the scale of the inputs as the network sees them.
    canaries:
        A forget set of which a fair coin leaves each example out of training; `remanence audit` then proves a lower
        bound on the privacy loss ε from this one run.
    """
    from remanence.data import is_table
    from remanence.errors import InputError
    from remanence.models import parse_options
    from remanence.tasks.importing import import_task
    from remanence.training import RunSettings, join_process_group, train_run
    from remanence.types import as_ids

    if bool(data) == bool(task):
        raise InputError("Give either `data`, with a model, or a `task` that brings both.")
    settings = RunSettings(
        data=data,
        model="" if task else model or ("mlp" if is_table(data) else "resnet18"),
        recipe=import_task(task).recipe if task else recipe.make(),
        task=task or "",
        device=device,
        seed=seed,
        model_options=parse_options(options or ()) | ({} if width is None else {"width": width}),
        data_dir=None if data_dir is None else str(data_dir),
        table=table.make(data),
        record=record,
        placement=placement,
        sigma=sigma,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        without=_ids(without),
        poison=_ids(poison),
        poison_variance=poison_variance,
    )
    if canaries is not None:
        settings = settings.with_canaries(as_ids(_ids(canaries)))
    with join_process_group() as ranks, console.progress("Training", show=ranks.first) as progress:
        run = train_run(settings, out, resume=resume, ranks=ranks, progress=progress)
        if not ranks.first:
            return
    measured = run.rows("measurements")
    accuracy = measured[-1]["value"] if measured else None
    if json:
        console.print_json(
            {"run": str(out), "test_accuracy": accuracy, "digest": run.digest(), "files": run.files()}
        )
    else:
        result = "" if accuracy is None else f": test accuracy {accuracy:.1%}"
        if accuracy is not None and _predicts_a_number(run.config()):
            result = f": {accuracy:.1%} of the test labels are predicted within half a standard deviation"
        console.out.print(f"Trained{result}. The run is in {out}.", soft_wrap=True)


def _predicts_a_number(settings: Mapping[str, Any]) -> bool:
    """Whether the label of a table is a number."""
    return "table" in settings and not settings["table"]["encoding"]["classes"]


def _ids(path: Path | None) -> tuple[int | str, ...]:
    from remanence.forgetting import read_id_list

    return () if path is None else tuple(read_id_list(path).tolist())
