"""`remanence audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App
from rich.table import Table

from remanence.cli import console
from remanence.cli.options import Json, Names, Paths, Workers

if TYPE_CHECKING:
    from remanence.audit.auditing import Audit

app = App(name="audit")
_WORDS = {"within": "within", "below": "too low", "above": "too high", "unknown": "no oracles"}


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
    seed: int = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Audit whether models have forgotten a forget set, by comparing them with models that never saw it.

    Prints one table per run: each metric, its value, the mean and standard deviation of the oracles, the distance,
    and whether it is within the tolerance. The tolerance is two-sided: a model far beyond the oracles has
    over-forgotten. All metrics of a model share one pass over the data.

    Metrics: ua, ra, test; mia, mia_loss, mia_entropy, mia_margin, and the accuracy of these attacks with `_accuracy`
    after the name; gus, gus_z, gus_printed (poisoned runs); klom, disagreement (with oracles); u_lira, u_lira_accuracy
    (with shadow models, which have to be trained: `--shadows` or `--budget`; their cost is printed first).

    For example:

    `remanence audit run forgotten --forget hardest.json --oracles oracle1 oracle2 oracle3`

    `remanence audit forgotten --forget hardest.json --oracles oracle1 oracle2 --metrics u_lira --budget 10`

    Parameters
    ----------
    runs:
        Runs to audit, before unlearning, after it, or both.
    forget:
        The forget set, made by `remanence select`.
    oracles:
        Runs that were trained without the forget set (`remanence train --without`); other runs are refused.
    metrics:
        Names of metrics; by default all that can be computed.
    tolerance:
        Largest distance from the oracles' mean that counts as close, for metrics that are shares.
    shadows:
        Number of shadow models to train for U-LiRA; an even number.
    budget:
        Train as many shadow models as this many minutes allow, instead of a fixed number.
    cache:
        Folder of the shadow models; finished ones are not trained again.
    seed:
        Random seed of the shadow models.
    out:
        Also write the JSON document to this file.
    """
    from remanence.audit.audit_document import audit_document
    from remanence.audit.auditing import audit_runs, share_data
    from remanence.errors import InputError
    from remanence.experiments import train_shadows
    from remanence.forgetting import read_forget_set_for
    from remanence.storage import atomic
    from remanence.training import open_run

    if not runs:
        raise InputError("Expected at least one run in `runs`; got none.")
    opened, opened_oracles = ([open_run(path) for path in paths] for paths in (runs, oracles or []))
    share_data([*opened, *opened_oracles])
    forget_set = read_forget_set_for(forget, opened[0])
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
        console.out.print()
    _explain(audits)


def _table(audit: Audit) -> Table:
    table = console.table("metric", "value", "oracles", "distance", "verdict")
    for finding in audit.findings:
        oracles, distance = "–", "–"
        if finding.oracle_mean is not None:
            oracles = f"{finding.oracle_mean:.3f} ± {finding.oracle_sd:.3f}"
            distance = f"{finding.distance:+.3f}"
        verdict = f"{_WORDS[finding.verdict]} (±{finding.tolerance:.3g})"
        table.add_row(finding.metric.name, f"{finding.value:.3f}", oracles, distance, verdict)
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
    from remanence.audit.auditing import ENOUGH_FOR_KLOM

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
    if "klom" in metrics and audits[0].oracles < ENOUGH_FOR_KLOM:
        few = f"klom is unreliable with {audits[0].oracles} oracles; its source uses a hundred."
        console.out.print(few, soft_wrap=True)
