"""`remanence tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.experiments import Tuning

app = App(name="tune")
Flag = Annotated[bool, Parameter(negative="")]


@app.default
def tune(
    run: Path,
    /,
    *,
    method: str,
    out: Path,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    range_: Annotated[list[str] | None, Parameter(name="--range")] = None,
    epochs: int | None = None,
    trials: int = 25,
    seeds: int = 1,
    oracles: int = 2,
    forget: Path | None = None,
    size: int = 100,
    metrics: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    sample: int | None = None,
    seed: int = 0,
    workers: int = 1,
    resume: Flag = False,
    json: Flag = False,
) -> None:
    """Tune a method's hyperparameters on a random forget set.

    Searches the learning rate, and the coefficient of l1_sparse, by Bayesian optimization. The aim is balance: as
    near as possible to oracles (retrained without the forget set, once) in forgetting and in utility. Among the
    configurations within 5 % of the best, the one that gets there in the fewest steps is chosen.

    Writes choice.json, which `remanence unlearn --tuned` reads, trials.jsonl with every trial, and their picture,
    trials.svg. Killed at any moment, `--resume` goes on. The same seed and number of workers try the same
    configurations.

    Example:

    `remanence tune run --method finetune --epochs 10 --workers 2 --out tuning`

    `remanence tune run --method l1_sparse --range lr=1e-3:0.2 --range coefficient=1e-5:1e-3 --out tuning`

    Parameters
    ----------
    run:
        A run made by `remanence train`.
    method:
        The method to tune.
    out:
        The folder to write; new or empty, or with --resume an unfinished one.
    option:
        A hyperparameter to hold fixed, name=value; may be given several times.
    range_:
        Where to search, name=lowest:highest, on a logarithmic scale; may be given several times.
    epochs:
        Length of each trial; the method's own by default.
    trials:
        Configurations to try.
    seeds:
        Repetitions of each.
    oracles:
        Models to retrain without the forget set.
    forget:
        Tune on this forget set instead of a random one.
    size:
        Of the random forget set.
    metrics:
        What to compare with the oracles; mia and test by default.
    sample:
        Measure on at most so many retain and test examples.
    seed:
        Of the search, the random forget set and the unlearning.
    workers:
        Trials at a time, each a process with one thread.
    resume:
        Go on with an unfinished tuning, or start when there is none.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.experiments import TuneSettings
    from remanence.experiments import tune as tuned
    from remanence.forgetting import read_forget_set_for
    from remanence.models import parse_options
    from remanence.report import save_figure, tuning_figure
    from remanence.training import open_run
    from remanence.unlearning import full_names

    fixed = parse_options(option or ()) | ({} if epochs is None else {"epochs": epochs})
    settings = TuneSettings(
        method=method,
        options=full_names(fixed),
        ranges=full_names(_ranges(range_ or ())),
        trials=trials,
        seeds=seeds,
        oracles=oracles,
        size=size,
        metrics=tuple(metrics) if metrics else ("mia", "test"),
        sample=sample,
        seed=seed,
        workers=workers,
    )
    opened = open_run(run)
    with console.progress_bar() as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: float, total: float) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        found = tuned(
            opened,
            settings,
            out,
            forget_set=None if forget is None else read_forget_set_for(forget, opened),
            resume=resume,
            progress=tell,
        )
    save_figure(tuning_figure(found), out / "trials.svg")
    _tell(found, json=json)


def _ranges(texts: list[str] | tuple[()]) -> dict[str, tuple[float, float]]:
    from remanence.errors import InputError

    found = {}
    for text in texts:
        name, _, span = text.partition("=")
        try:
            low, high = map(float, span.split(":"))
        except ValueError:
            raise InputError(f"A range must read name=lowest:highest; got {text!r}.") from None
        found[name] = (low, high)
    return found


def _tell(found: Tuning, *, json: bool) -> None:
    from dataclasses import asdict

    from remanence.experiments.choice import MARGIN

    choice = found.choice
    if json:
        rows = [asdict(each) | {"best": each.best} for each in found.tried]
        document: dict[str, Any] = {"choice": asdict(choice), "oracle": dict(found.oracle), "trials": rows}
        console.print_json(
            document | {"files": [str(found.folder / n) for n in ("choice.json", "trials.svg")]}
        )
        return
    console.out.print(_table(found))
    if choice.untouched >= (1 - MARGIN) * found.level:
        console.note(
            f"Before unlearning the balance was already {choice.untouched:.3f}: this forget set tells little, and only "
            "the best balance counts. Tune on a set that the model remembers."
        )
    values = ", ".join(f"{name}={value:.4g}" for name, value in choice.options.items())
    console.out.print(
        f"Chosen: {choice.method} with {values}; balance {choice.balance:.3f}, there in {choice.steps} steps. "
        f"The choice is in {found.folder / 'choice.json'}.",
        soft_wrap=True,
    )


def _table(found: Tuning) -> Any:
    from rich.table import Table

    names = list(found.tried[0].options)
    table = Table("trial", *names, "balance", "steps to it", box=None)
    for each in sorted(found.tried, key=lambda tried: -tried.best):
        steps = each.steps_to(found.level)
        mark = "*" if all(found.choice.options[n] == each.options[n] for n in names) else ""
        told = "diverged" if each.diverged else f"{each.best:.3f}"
        values = [f"{each.options[n]:.3g}" for n in names]
        table.add_row(f"{each.number}{mark}", *values, told, "–" if steps is None else str(steps))
    return table
