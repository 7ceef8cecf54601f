"""`remanence train`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import (
    CheckpointEvery,
    Data,
    DataDir,
    Flag,
    Json,
    Model,
    ModelOptions,
    Resume,
    Sigma,
)
from remanence.cli.recipes import RecipeOptions

app = App(name="train")
_RECIPE = RecipeOptions()


@app.default
def train(
    *,
    data: Data,
    out: Path,
    model: Model = "resnet18",
    data_dir: DataDir = None,
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
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Train a model and record the gradient norm of each example.

    Writes a run folder: settings, weights, test accuracy after each epoch, and the trace that scores are computed from.
    If the run is interrupted, `--resume` continues from the last checkpoint and ends with the same bits. Under torchrun
    the processes share the work.

    For example:

    `remanence train --data digits --model resnet18 --width 8 --epochs 3 --record 12 --out run`

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
    """
    from remanence.models import parse_options
    from remanence.training import RunSettings, join_process_group, train_run

    settings = RunSettings(
        data=data,
        model=model,
        recipe=recipe.make(),
        seed=seed,
        model_options=parse_options(options or ()) | ({} if width is None else {"width": width}),
        data_dir=None if data_dir is None else str(data_dir),
        record=record,
        placement=placement,
        sigma=sigma,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        without=_ids(without),
        poison=_ids(poison),
        poison_variance=poison_variance,
    )
    with join_process_group() as ranks, console.progress("Training", show=ranks.first) as progress:
        run = train_run(settings, out, resume=resume, ranks=ranks, progress=progress)
        if not ranks.first:
            return
    accuracy = run.rows("measurements")[-1]["value"]
    if json:
        console.print_json(
            {"run": str(out), "test_accuracy": accuracy, "digest": run.digest(), "files": run.files()}
        )
    else:
        console.out.print(f"Trained: test accuracy {accuracy:.1%}. The run is in {out}.", soft_wrap=True)


def _ids(path: Path | None) -> tuple[int | str, ...]:
    from remanence.forgetting import read_forget_set

    return () if path is None else tuple(read_forget_set(path).ids.tolist())
