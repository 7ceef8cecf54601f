"""`remanence import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.options import DataDir, Device, Json, ModelOptions, Sigma, TaskPath
from remanence.cli.tables import TableOptions

app = App(name="import")
_TABLE = TableOptions()


@app.default
def import_(
    *,
    out: Path,
    task: TaskPath = None,
    weights: Path | None = None,
    checkpoints: Path | None = None,
    data: Annotated[str | None, Parameter(help="Instead of --task: name or path of a data set.")] = None,
    model: Annotated[str | None, Parameter(help="Instead of --task: name or import path of a model.")] = None,
    data_dir: DataDir = None,
    table: TableOptions = _TABLE,
    options: ModelOptions = None,
    batch_size: int | None = None,
    total_steps: int | None = None,
    noise: float = 0.0,
    sigma: Sigma = 0.1,
    sampling: Literal["shuffled", "poisson"] = "shuffled",
    seed: int = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Make a run of a model that was trained elsewhere, so that it can be scored, planned for, unlearned and audited.

    The task says how to build the model, what its data are, and how to train it without some of them. With several
    saved checkpoints, the trace is made from them. With the final weights alone it has one checkpoint, and the status
    of every score says so. This executes the module of --task.

    For example:

    `remanence import --task mine.training:task --weights model.pt --out run`

    `remanence import --task mine.training:task --checkpoints checkpoints/ --out run`

    `remanence import --data cifar10 --model mine.models:make --checkpoints checkpoints/ --batch-size 128 --out run`

    Parameters
    ----------
    out:
        Folder of the new run.
    weights:
        State dict of the model, `.safetensors`, `.pt` or `.pth`; by default the last checkpoint.
    checkpoints:
        Folder of state dicts whose names end in their step, or a run trained with --keep-checkpoints.
    batch_size:
        Batch size of the training; by default that of the task's recipe.
    total_steps:
        Optimizer steps of the training; by default those of the last checkpoint.
    noise:
        Standard deviation of the noise that training really added to the mini-batch gradient.
    sampling:
        How training drew its batches.
    seed:
        Random seed of the training.
    """
    from remanence.errors import InputError
    from remanence.models import parse_options
    from remanence.tasks import RECIPES
    from remanence.training import PastTraining, RunSettings, import_run, join_process_group

    if (task is None) == (data is None or model is None):
        raise InputError("Give either `task`, or both `data` and `model`.")
    settings = RunSettings(
        data=data or "",
        model=model or "",
        recipe=RECIPES["plain"],
        seed=seed,
        model_options=parse_options(options or ()),
        data_dir=None if data_dir is None else str(data_dir),
        table=table.make(data or ""),
        record=0,
        sigma=sigma,
        task=task or "",
        device=device,
    ).with_fitted_table()
    opened = settings.open_task()
    with join_process_group() as ranks, console.progress("Recording", show=ranks.first) as progress:
        run = import_run(
            opened,
            weights,
            out=out,
            checkpoints=checkpoints,
            past=PastTraining(batch_size, total_steps, noise, sigma, sampling),
            seed=seed,
            settings=None if task else settings,
            ranks=ranks,
            progress=progress,
        )
        if not ranks.first:
            return
    steps = run.trace().steps.tolist()
    if json:
        console.print_json({"run": str(out), "checkpoints": steps, "digest": run.folder.digest()})
    else:
        count = "one checkpoint" if len(steps) == 1 else f"{len(steps)} checkpoints"
        console.out.print(f"The run is in {out}, with a trace of {count}.", soft_wrap=True)
