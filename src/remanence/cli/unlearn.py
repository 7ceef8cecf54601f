"""`remanence unlearn`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import (
    CheckpointEvery,
    Device,
    Json,
    LearningRate,
    MethodOptions,
    Names,
    Resume,
    Sample,
    Tuned,
)

if TYPE_CHECKING:
    from remanence.training import Run

app = App(name="unlearn")


@app.default
def unlearn(
    run: Path,
    /,
    *,
    forget: Path,
    out: Path,
    method: str | None = None,
    tuned: Tuned = None,
    options: MethodOptions = None,
    learning_rate: LearningRate = None,
    epochs: int | None = None,
    steps: int | None = None,
    metrics: Names = None,
    every: int | None = None,
    sample: Sample = None,
    seed: int = 0,
    checkpoint_every: CheckpointEvery = 0,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Unlearn a forget set from a run, and measure on the way.

    Writes a run folder of the same kind: the new weights, the forget set and the method, and the measurements over the
    steps. If the run is interrupted, `--resume` continues from the last checkpoint and ends with the same bits. Under
    torchrun the processes share the work. `--method retrain` trains an oracle, as `remanence train --without` does.

    Methods: retrain, finetune, noisy_finetune, l1_sparse, gradient_ascent, neggrad_plus, random_label, scrub, salun,
    reset, shrink_perturb, out_of_fold, msg, del. By default the hyperparameters of a method are those of its paper, or
    those that the run was trained with (batch size, momentum, weight decay).

    For example:

    `remanence unlearn run --forget hardest.json --method finetune --lr 0.1 --epochs 10 --out forgotten`

    `remanence unlearn run --forget hardest.json --method l1_sparse --option coefficient=1e-4 --out sparse`

    `remanence unlearn run --forget hardest.json --tuned tuning/choice.json --out forgotten`

    Parameters
    ----------
    run:
        A run made by `remanence train`, or by this command.
    forget:
        A forget set made by `remanence select`, or any other list of ids.
    out:
        Folder of the new run; new or empty, or an unfinished run with --resume.
    method:
        Name of the unlearning method.
    learning_rate:
        Initial learning rate of the unlearning.
    epochs:
        Number of passes over the data; the method's own by default.
    steps:
        Stop after this many steps.
    metrics:
        Metrics to measure; ua, ra, test and mia by default.
    every:
        Steps between measurements; by default dense at first, then sparse, at no more than the cost of training.
    seed:
        Random seed of the unlearning.
    """
    from remanence.experiments import DEFAULT_METRICS, UnlearnSettings, tuned_method, unlearn_run
    from remanence.forgetting import read_forget_set_for
    from remanence.models import parse_options
    from remanence.training import join_process_group, open_run

    given = {"learning_rate": learning_rate, "epochs": epochs}
    name, hyperparameters = tuned_method(
        method,
        parse_options(options or ()) | {key: value for key, value in given.items() if value is not None},
        tuned,
    )
    settings = UnlearnSettings(
        method=name,
        options=hyperparameters,
        steps=steps,
        seed=seed,
        metrics=tuple(metrics) if metrics else DEFAULT_METRICS,
        every=every,
        sample=sample,
        checkpoint_every=checkpoint_every,
    )
    opened = open_run(run, device=device)
    with join_process_group() as ranks, console.progress("Unlearning", show=ranks.first) as progress:
        forget_set = read_forget_set_for(forget, opened)
        unlearned = unlearn_run(
            opened, forget_set, settings, out, resume=resume, ranks=ranks, progress=progress
        )
        if not ranks.first:
            return
    _print(unlearned, out, name, json=json)


def _print(unlearned: Run, out: Path, method: str, *, json: bool) -> None:
    rows = unlearned.folder.rows("measurements")
    steps = rows[-1]["step"] if rows else 0
    first, last = (
        {row["metric"]: row["value"] for row in rows if row["step"] == step} for step in (0, steps)
    )
    if json:
        folder = unlearned.folder
        document = {"run": str(out), "method": method, "steps": steps, "measured": last}
        console.print_json(document | {"digest": folder.digest(), "files": folder.files()})
        return
    figures = ", ".join(
        f"{name} {first[name]:.3f} → {value:.3f}" if name in first else f"{name} {value:.3f}"
        for name, value in last.items()
    )
    console.out.print(
        f"Unlearned with {method} in {steps} steps: {figures}. The run is in {out}.", soft_wrap=True
    )
