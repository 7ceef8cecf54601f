"""`remanence train`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.recipes import RecipeOptions, recipe_from

app = App(name="train")
Flag = Annotated[bool, Parameter(negative="")]
_PLAIN = RecipeOptions()


@app.default
def train(
    *,
    data: str,
    out: Path,
    model: str = "resnet18",
    data_dir: Path | None = None,
    width: int | None = None,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    recipe: RecipeOptions = _PLAIN,
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
    from remanence.models import parse_options
    from remanence.training import joined
    from remanence.training.train_run import RunSettings, train_run

    options = parse_options(option or ()) | ({} if width is None else {"width": width})
    settings = RunSettings(
        data=data,
        model=model,
        recipe=recipe_from(recipe),
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
