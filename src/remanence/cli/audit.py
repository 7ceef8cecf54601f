"""`remanence audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App
from rich.table import Table

from remanence.cli import console
from remanence.cli.options import Address, Device, ExecutorName, Json, Names, Paths, Workers

if TYPE_CHECKING:
    from remanence.audit.auditing import Audit

app = App(name="audit")
_WORDS = {"within": "within", "below": "too low", "above": "too high", "unknown": "no reference value"}


@app.default
def audit(
    *runs: Path,
    forget: Path,
    oracles: Paths = None,
    metrics: Names = None,
    tolerance: float = 0.05,
    shadows: int | None = None,
    budget: float | None = None,
    cache: Path = Path(".remanence"),
    workers: Workers = None,
    executor: ExecutorName = "process",
    address: Address = None,
    relearning: bool = True,
    relearning_epochs: int = 3,
    relearning_steps: int = 10,
    people: Path | None = None,
    id_column: str = "id",
    user_column: str = "user",
    seed: int = 0,
    out: Path | None = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Audit whether models have forgotten a forget set, by comparing them with models that never saw it.

    Prints one table per run: each metric, its value, the mean and standard deviation of the oracles, the distance,
    and whether it is within the tolerance. The tolerance is two-sided: a model far beyond the oracles has
    over-forgotten. All metrics of a model share one pass over the data.

    Metrics: ua, ra, test; mia, mia_confidence, mia_loss, mia_entropy, and the accuracy of these attacks with
    `_accuracy` after the name; log_odds, forget_log_odds; gus, gus_z, gus_printed (poisoned runs); klom,
    disagreement, rmia, relative_mmd, mmd_p (with oracles); u_lira, u_lira_accuracy, bavaria, swap (with shadow
    models, which have to be trained: `--shadows` or `--budget`); relearn_retain, relearn_speed, and with
    `_log_odds` after the name (copies of every model are fine-tuned; `--no-relearning` skips it); harm,
    harm_worst_class, harm_worst_person (if the run that was unlearned is audited, too); one_run_epsilon (runs
    trained with `--canaries`). The cost of shadow models and of relearning is printed first. What cannot be
    measured is listed with the reason.

    For example:

    `remanence audit run forgotten --forget hardest.json --oracles oracle1 oracle2 oracle3`

    `remanence audit forgotten --forget hardest.json --oracles oracle1 oracle2 --metrics u_lira --budget 10`

    Parameters
    ----------
    runs:
        Runs to audit, before unlearning, after it, or both.
    forget:
        A forget set made by `remanence select`, or any other list of ids.
    oracles:
        Runs that were trained without the forget set (`remanence train --without`); other runs are refused.
    metrics:
        Names of metrics; by default all that can be computed.
    tolerance:
        Largest distance from the oracles' mean that counts as close, for metrics that are shares.
    shadows:
        Number of shadow models to train for U-LiRA, BaVarIA and the SWAP test; an even number.
    budget:
        Train as many shadow models as this many minutes allow, instead of a fixed number.
    cache:
        Folder of the shadow models; finished ones are not trained again.
    relearning:
        Fine-tune copies of every run and oracle on retained data and on the forget set, and compare what comes back.
    relearning_epochs:
        Epochs of that fine-tuning on retained data, with each of two learning rates.
    relearning_steps:
        Steps of that fine-tuning on the forget set.
    people:
        A .csv or .parquet table with the person of each example, for the harm to the worst person.
    id_column:
        Column of the ids in --people.
    user_column:
        Column of the persons in --people.
    seed:
        Random seed of the shadow models and of relearning.
    out:
        Also write the JSON document to this file.
    """
    from remanence.audit.audit_document import audit_document
    from remanence.audit.auditing import audit_runs, share_data
    from remanence.errors import InputError
    from remanence.experiments import Relearning, announced, train_shadows
    from remanence.forgetting import read_forget_set_for, users_from_file
    from remanence.storage import atomic
    from remanence.training import open_run

    if not runs:
        raise InputError("Expected at least one run in `runs`; got none.")
    opened, opened_oracles = (
        [open_run(path, device=device) for path in paths] for paths in (runs, oracles or [])
    )
    share_data([*opened, *opened_oracles])
    forget_set = read_forget_set_for(forget, opened[0])
    wanted = relearning and (metrics is None or any(name.startswith("relearn") for name in metrics))
    how = Relearning(relearning_epochs, relearning_steps, seed=seed)
    owners = None
    if people is not None:
        owned = users_from_file(people, opened[0].clean[0].ids, id_column=id_column, user_column=user_column)
        owners = dict(zip(owned[0].tolist(), owned[1], strict=True))
    table = None
    if shadows is not None or budget is not None:
        with console.progress("Training shadow models", show=not json) as progress:
            table = train_shadows(
                opened,
                forget_set,
                shadows=shadows,
                budget=budget,
                cache=cache,
                workers=workers,
                executor=executor,
                address=address,
                seed=seed,
                note=console.note,
                progress=progress,
            )
    with console.progress("Evaluating the models", show=not json) as progress:
        audits = audit_runs(
            opened,
            forget_set,
            opened_oracles,
            metrics=metrics or (),
            tolerance=tolerance,
            shadows=table,
            relearning=announced(how, len(opened) + len(opened_oracles), console.note) if wanted else None,
            people=owners,
            progress=progress,
        )
    document = audit_document(audits)
    if out is not None:
        atomic.write_json(out, document)
    if json:
        console.print_json(document)
    else:
        _print(audits)


def _print(audits: list[Audit]) -> None:
    for audit in audits:
        console.out.print(f"{audit.run.folder.path}", style="bold", soft_wrap=True, markup=False)
        console.out.print(_table(audit))
        _print_gus_change(audit, audits[0])
        if audit.one_run is not None:
            console.out.print(f"one_run_epsilon: {audit.one_run.sentence()}", soft_wrap=True, markup=False)
        for reason in audit.not_measured:
            console.out.print(f"Not measured: {reason}", style="dim", soft_wrap=True, markup=False)
        console.out.print()
    _explain(audits)


def _table(audit: Audit) -> Table:
    table = console.table("metric", "value", "oracles", "distance", "verdict")
    for finding in audit.findings:
        oracles, distance = "–", "–"
        if finding.oracle_mean is not None:
            oracles = f"{finding.oracle_mean:.3f} ± {finding.oracle_sd:.3f}"
            distance = f"{finding.distance:+.3f}"
        verdict = _WORDS[finding.verdict]
        if finding.verdict != "unknown":
            verdict += f" (±{finding.tolerance:.3g})"
        spread = "" if finding.value_sd is None else f" ± {finding.value_sd:.3f}"
        table.add_row(finding.metric.name, f"{finding.value:.3f}{spread}", oracles, distance, verdict)
    return table


def _print_gus_change(audit: Audit, first: Audit) -> None:
    before, now = (
        next((finding.value for finding in side.findings if finding.metric.name == "gus"), None)
        for side in (first, audit)
    )
    if audit is not first and now is not None and before is not None:
        change = f"gus changed by {now - before:+.3f} since {first.run.folder.path}; the paper judges by that change."
        console.out.print(change, soft_wrap=True, markup=False)


def _explain(audits: list[Audit]) -> None:
    """Say once what the metrics mean."""
    metrics = {finding.metric.name: finding.metric for audit in audits for finding in audit.findings}
    width = max(map(len, metrics))
    for name, metric in metrics.items():
        meaning = f"{name:{width}}  {metric.meaning}. An oracle: {metric.at_oracle}."
        console.out.print(meaning, style="dim", soft_wrap=True)
    noise = next((audit.noise for audit in audits if audit.noise is not None), None)
    if noise is not None and "gus" in metrics:
        console.out.print(
            f"The variance of the noise is {noise[0]:.3g} on inputs as the network sees them, {noise[1]:.3g} on "
            "standardized inputs.",
            soft_wrap=True,
        )
    for finding in (finding for audit in audits for finding in audit.findings if not finding.conclusive):
        few = (
            f"{finding.metric.name} is only known to ±{finding.tolerance:.2g} with so few shadow models and "
            f"examples; to show "
            "that nothing leaks, train more."
        )
        console.out.print(few, soft_wrap=True)
