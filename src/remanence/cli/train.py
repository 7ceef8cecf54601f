"""`remanence train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="train")
Flag = Annotated[bool, Parameter(negative="")]


@app.default
def train(
    *,
    data: str,
    out: Path,
    model: str = "resnet18",
    data_dir: Path | None = None,
    width: int | None = None,
    option: list[str] | None = None,
    recipe: str = "plain",
    epochs: int | None = None,
    learning_rate: Annotated[float | None, Parameter(name=["--learning-rate", "--lr"])] = None,
    batch_size: int | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    schedule: Literal["constant", "cosine", "milestones"] | None = None,
    milestones: list[int] | None = None,
    noise: float | None = None,
    langevin: bool | None = None,
    sampling: Literal["shuffled", "poisson"] | None = None,
    radius: float | None = None,
    accumulate: int | None = None,
    augment: bool | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = None,
    channels_last: bool | None = None,
    compile: bool | None = None,  # noqa: A002 - the option is called --compile
    seed: int = 0,
    record: int = 35,
    placement: Literal["even", "log", "adaptive"] = "adaptive",
    sigma: float = 0.1,
    checkpoint_every: int = 0,
    keep_checkpoints: Flag = False,
    without: Path | None = None,
    poison: Path | None = None,
    poison_variance: float = 0.062,
    resume: Flag = False,
    json: Flag = False,
) -> None:
    """Train a model and record what each example leaves behind.

    Writes a run folder: settings, weights, test accuracy after each epoch, and the trace that scores are
    computed from. Killed at any moment, `--resume` goes on and ends with the same bits. Under torchrun the processes
    share the work.

    Example:

    `remanence train --data digits --model resnet18 --width 8 --epochs 3 --record 12 --out run`

    `torchrun --nproc-per-node 2 -m remanence train --data digits --model mlp --out run`

    Parameters
    ----------
    data:
        A data set's name (digits, fashion-mnist, cifar10, svhn) or the path of one.
    out:
        The run folder; new or empty, or with --resume an unfinished one.
    model:
        A model's name, or your own as package.module:function.
    data_dir:
        Where data sets lie.
    width:
        Width of the model, where it has one.
    option:
        Another option of the model, name=value (norm=group, depth=6); may be given several times.
    recipe:
        Settings to start from: plain, or paper (150 epochs, the paper's schedule); the options below change them.
    epochs:
        Passes over the data.
    learning_rate:
        At the start.
    batch_size:
        Examples a step.
    momentum:
        Of SGD.
    weight_decay:
        Of SGD.
    schedule:
        How the learning rate changes.
    milestones:
        Epochs at which it drops by a factor of ten.
    noise:
        Standard deviation of Gaussian noise on the mini-batch gradient (SGLD).
    langevin:
        Scale the noise as Langevin dynamics do.
    sampling:
        Poisson sampling with a fixed denominator is what a certificate needs.
    radius:
        Project the weights onto a ball.
    accumulate:
        Split each batch to save memory.
    augment:
        Random crops and flips.
    precision:
        Autocast.
    channels_last:
        Memory format of images.
    compile:
        Use torch.compile.
    seed:
        Of everything random.
    record:
        Checkpoints of the trace, at most so many when adaptive; 0 for none.
    placement:
        Where they fall: adaptive looks when something has changed, even is the paper's, log is dense early.
    sigma:
        Noise to assume in the accounting when none is added.
    checkpoint_every:
        Steps between checkpoints of the run's state; an epoch when 0.
    keep_checkpoints:
        Keep them all.
    without:
        A forget set to leave out of training: the run is then an oracle for it.
    poison:
        A set whose inputs get Gaussian noise that is kept with the run, so that `gus` can look for it later.
    poison_variance:
        Variance of that noise, on the scale of the inputs as the network sees them.
    resume:
        Go on with an unfinished run, or start when there is none.
    json:
        Print the outcome as one JSON document.
    """
    from dataclasses import replace

    from remanence.errors import UnknownNameError
    from remanence.models import parse_options
    from remanence.training import RECIPES, joined
    from remanence.training.run import RunSettings, train_run

    if recipe not in RECIPES:
        raise UnknownNameError("recipe", recipe, RECIPES)
    given = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "schedule": schedule,
        "milestones": tuple(milestones) if milestones else None,
        "noise": noise,
        "langevin": langevin,
        "sampling": sampling,
        "radius": radius,
        "accumulate": accumulate,
        "augment": augment,
        "precision": precision,
        "channels_last": channels_last,
        "compile": compile,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    options = parse_options(option or ()) | ({} if width is None else {"width": width})
    settings = RunSettings(
        data=data,
        model=model,
        recipe=replace(RECIPES[recipe], **changes),  # type: ignore[arg-type]
        seed=seed,
        model_options=options,
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
    with joined() as ranks, console.progress_bar(show=ranks.first) as bar:
        task = bar.add_task("Training", total=None)
        run = train_run(
            settings,
            out,
            resume=resume,
            ranks=ranks,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        if not ranks.first:
            return
    accuracy = run.rows("measurements")[-1]["value"]
    if json:
        console.print_json(
            {"run": str(out), "test_accuracy": accuracy, "digest": run.digest(), "files": run.files()}
        )
    else:
        console.out.print(f"Trained: test accuracy {accuracy:.1%}. The run is in {os.fspath(out)}.")


def _ids(path: Path | None) -> tuple[int | str, ...]:
    from remanence.forgetting import read_forget_set

    return () if path is None else tuple(read_forget_set(path).ids.tolist())
