"""`remanence unlearn`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.training import Run

app = App(name="unlearn")
Flag = Annotated[bool, Parameter(negative="")]


@app.default
def unlearn(
    run: Path,
    /,
    *,
    forget: Path,
    out: Path,
    method: str | None = None,
    tuned: Path | None = None,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    learning_rate: Annotated[float | None, Parameter(name=["--learning-rate", "--lr"])] = None,
    epochs: int | None = None,
    steps: int | None = None,
    metrics: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    every: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    checkpoint_every: int = 0,
    resume: Flag = False,
    json: Flag = False,
) -> None:
    """Unlearn a forget set from a run, and measure as it goes.

    Writes a run folder of the same kind: the new weights, what was forgotten and how, and the measurements over the
    steps. Killed at any moment, `--resume` goes on and ends with the same bits. Under torchrun the processes share the
    work. `--method retrain` trains an oracle, as `remanence train --without` does.

    Methods: retrain, finetune, noisy_finetune, l1_sparse, gradient_ascent, neggrad_plus, random_label, scrub, salun.
    What is not said of a method is as its paper has it, or as the run was trained (batch size, momentum, weight decay).

    Example:

    `remanence unlearn run --forget hardest.json --method finetune --lr 0.1 --epochs 10 --out forgotten`

    `remanence unlearn run --forget hardest.json --method l1_sparse --option coefficient=1e-4 --out sparse`

    `remanence unlearn run --forget hardest.json --tuned tuning/choice.json --out forgotten`

    Parameters
    ----------
    run:
        A run made by `remanence train`, or by this command.
    forget:
        A forget set made by `remanence select`.
    out:
        The new run's folder; new or empty, or with --resume an unfinished one.
    method:
        How to unlearn.
    tuned:
        Method and options that `remanence tune` chose; what is given beside it wins.
    option:
        A hyperparameter of the method, name=value (coefficient=1e-4, batch_size=64); may be given several times.
    learning_rate:
        Of the unlearning, at the start.
    epochs:
        Passes over the data; the method's own by default.
    steps:
        Stop after so many steps.
    metrics:
        What to measure; ua, ra, test and mia by default.
    every:
        Steps between measurements; by default densely at first and then sparsely, at no more than training costs.
    sample:
        Measure on at most so many retain and test examples.
    seed:
        Of everything random.
    checkpoint_every:
        Steps between checkpoints of the state; an epoch when 0.
    resume:
        Go on with an unfinished run, or start when there is none.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.errors import InputError
    from remanence.experiments import DEFAULT_METRICS, UnlearnSettings, read_choice, unlearn_run
    from remanence.forgetting import read_forget_set_for
    from remanence.models import parse_options
    from remanence.training import joined, open_run
    from remanence.unlearning import full_names

    if method is None and tuned is None:
        raise InputError("Say how to unlearn: give --method, or --tuned with a choice of `remanence tune`.")
    chosen = None if tuned is None else read_choice(tuned)
    if chosen is not None and method not in (None, chosen.method):
        raise InputError(
            f"{tuned} was tuned for {chosen.method}; --method {method} needs a choice of its own."
        )
    said = {"learning_rate": learning_rate, "epochs": epochs}
    options = dict(chosen.options) if chosen is not None else {}
    options |= full_names(parse_options(option or ())) | {
        key: value for key, value in said.items() if value is not None
    }
    settings = UnlearnSettings(
        method=method or (chosen.method if chosen is not None else ""),
        options=options,
        steps=steps,
        seed=seed,
        metrics=tuple(metrics) if metrics else DEFAULT_METRICS,
        every=every,
        sample=sample,
        checkpoint_every=checkpoint_every,
    )
    opened = open_run(run)
    with joined() as ranks, console.progress_bar(show=ranks.first) as bar:
        task = bar.add_task("Unlearning", total=None)
        made = unlearn_run(
            opened,
            read_forget_set_for(forget, opened),
            settings,
            out,
            resume=resume,
            ranks=ranks,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        if not ranks.first:
            return
    _tell(made, out, settings.method, json=json)


def _tell(made: Run, out: Path, method: str, *, json: bool) -> None:
    rows = made.folder.rows("measurements")
    steps = rows[-1]["step"] if rows else 0
    last = {row["metric"]: row["value"] for row in rows if row["step"] == steps}
    if json:
        document: dict[str, Any] = {"run": str(out), "method": method, "steps": steps, "measured": last}
        console.print_json(document | {"digest": made.folder.digest(), "files": made.folder.files()})
        return
    first = {row["metric"]: row["value"] for row in rows if row["step"] == 0}
    figures = ", ".join(
        f"{name} {first[name]:.3f} → {value:.3f}" if name in first else f"{name} {value:.3f}"
        for name, value in last.items()
    )
    console.out.print(
        f"Unlearned with {method} in {steps} steps: {figures}. The run is in {os.fspath(out)}.",
        soft_wrap=True,
    )
