"""`remanence tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.options import Address, Device, ExecutorName, Json, MethodOptions, Names, Resume, Sample

if TYPE_CHECKING:
    from rich.table import Table

    from remanence.experiments import Tuning
    from remanence.training import Run
    from remanence.types import ForgetSet

app = App(name="tune")


@app.default
def tune(
    run: Path,
    /,
    *,
    method: str,
    out: Path,
    options: MethodOptions = None,
    ranges: Annotated[list[str] | None, Parameter(name="--range", negative="")] = None,
    epochs: int | None = None,
    trials: int = 25,
    seeds: int = 1,
    oracles: int = 2,
    forget: Path | None = None,
    like: Path | None = None,
    size: int = 100,
    metrics: Names = None,
    sample: Sample = None,
    seed: int = 0,
    workers: int = 1,
    executor: ExecutorName = "process",
    address: Address = None,
    resume: Resume = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Tune the hyperparameters of an unlearning method on a forget set.

    Searches the learning rate, and the coefficient of l1_sparse, by Bayesian optimization. The objective is a balance:
    as close as possible to oracles (models retrained without the forget set) in forgetting and in utility. Among the
    configurations within 5 % of the best, the one that reaches that level in the fewest steps is chosen.

    Writes choice.json, which `remanence unlearn --tuned` reads, trials.jsonl with every trial, and the figure
    trials.svg. If the tuning is interrupted, `--resume` continues it. The same seed and number of workers try the same
    configurations.

    For example:

    `remanence tune run --method finetune --epochs 10 --workers 2 --out tuning`

    `remanence tune run --method reset --like hardest.json --out tuning`

    `remanence tune run --method l1_sparse --range lr=1e-3:0.2 --range coefficient=1e-5:1e-3 --out tuning`

    Parameters
    ----------
    run:
        A run made by `remanence train`.
    method:
        Name of the method to tune.
    out:
        Folder for the results; new or empty, or an unfinished tuning with --resume.
    ranges:
        Range to search, name=lowest:highest, on a logarithmic scale; may be given several times.
    epochs:
        Length of each trial in epochs; the method's own by default.
    trials:
        Number of configurations to try.
    seeds:
        Number of repetitions of each configuration.
    oracles:
        Number of models to retrain without the forget set.
    forget:
        Tune on this forget set instead of a random one.
    like:
        Tune on other examples that are as difficult as this forget set, by privacy loss: settings that suit random
        examples are too gentle for hard ones.
    size:
        Size of the random forget set.
    metrics:
        Metrics to compare with the oracles; mia and test by default.
    seed:
        Random seed for the search, the random forget set and the unlearning.
    workers:
        Number of trials at a time, each in a process with one thread.
    """
    from remanence.errors import InputError
    from remanence.experiments import TuneSettings
    from remanence.experiments import tune as tune_run
    from remanence.models import parse_options
    from remanence.report import save_figure, tuning_figure
    from remanence.training import open_run
    from remanence.unlearning import full_names

    if forget is not None and like is not None:
        raise InputError("Expected one of `forget` and `like`; got both.")
    fixed = parse_options(options or ()) | ({} if epochs is None else {"epochs": epochs})
    settings = TuneSettings(
        method=method,
        options=full_names(fixed),
        ranges=full_names(dict(map(_range, ranges or ()))),
        trials=trials,
        seeds=seeds,
        oracles=oracles,
        size=size,
        metrics=tuple(metrics) if metrics else ("mia_confidence", "test"),
        sample=sample,
        seed=seed,
        workers=workers,
    )
    opened = open_run(run, device=device)
    chosen = _forget_set(opened, forget, like)
    with console.progress_bar() as bar:
        tasks: dict[str, Any] = {}

        def report(description: str, done: float, total: float) -> None:
            if description not in tasks:
                tasks[description] = bar.add_task(description, total=total)
            bar.update(tasks[description], completed=done)

        tuning = tune_run(
            opened,
            settings,
            out,
            forget_set=chosen,
            resume=resume,
            executor=executor,
            address=address,
            progress=report,
        )
    save_figure(tuning_figure(tuning), out / "trials.svg")
    if json:
        files = [str(out / name) for name in ("choice.json", "trials.svg")]
        console.print_json(tuning.document() | {"files": files})
    else:
        _print(tuning)


def _forget_set(run: Run, forget: Path | None, like: Path | None) -> ForgetSet | None:
    """The set to tune on; None for a random one."""
    from remanence.forgetting import alike, read_forget_set_for
    from remanence.scores import score_table

    if like is not None:
        losses = score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
        return alike(losses, read_forget_set_for(like, run))
    return None if forget is None else read_forget_set_for(forget, run)


def _range(text: str) -> tuple[str, tuple[float, float]]:
    from remanence.errors import InputError

    name, _, span = text.partition("=")
    try:
        low, high = map(float, span.split(":"))
    except ValueError:
        raise InputError(f"A range must have the form name=lowest:highest; got {text!r}.") from None
    return name, (low, high)


def _print(tuning: Tuning) -> None:
    choice = tuning.choice
    console.out.print(_table(tuning))
    if not tuning.informative:
        console.note(
            f"Before unlearning the balance was already {choice.untouched:.3f}: this forget set is not informative, "
            "and only the best balance counts. Tune on a set that the model remembers."
        )
    values = ", ".join(f"{name}={value:.4g}" for name, value in choice.options.items())
    console.out.print(
        f"Chosen: {choice.method} with {values}; balance {choice.balance:.3f}, reached in {choice.steps} steps. "
        f"The choice is in {tuning.folder / 'choice.json'}.",
        soft_wrap=True,
    )


def _table(tuning: Tuning) -> Table:
    table = console.table("trial", *tuning.tried[0].options, "balance", "steps to it")
    for tried in sorted(tuning.tried, key=lambda tried: -tried.best):
        steps = tried.steps_to(tuning.level)
        table.add_row(
            f"{tried.number}{'*' if tuning.is_choice(tried) else ''}",
            *(f"{value:.3g}" for value in tried.options.values()),
            "diverged" if tried.diverged else f"{tried.best:.3f}",
            "–" if steps is None else str(steps),
        )
    return table
