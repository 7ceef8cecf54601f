"""`remanence audit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from rich.table import Table

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.audit import ShadowTable
    from remanence.audit.auditing import Audit, Finding
    from remanence.training import Run
    from remanence.types import ForgetSet

app = App(name="audit")
Flag = Annotated[bool, Parameter(negative="")]
Several = Parameter(consume_multiple=True, negative="")


@app.default
def audit(
    *runs: Path,
    forget: Path,
    oracles: Annotated[list[Path] | None, Several] = None,
    metrics: Annotated[list[str] | None, Several] = None,
    tolerance: float = 0.05,
    shadows: int | None = None,
    budget: float | None = None,
    cache: Path = Path(".remanence"),
    workers: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    json: Flag = False,
) -> None:
    """Ask whether a forget set is gone from a model, beside models that never saw it.

    Every run gets a table: each metric, its value, the oracles' mean and standard deviation, the distance, and whether
    it is within the tolerance, on both sides: far beyond the oracles is over-forgotten. All metrics of a model share
    one pass over the data.

    Metrics: ua, ra, test; mia, mia_loss, mia_entropy, mia_margin and, with `_accuracy` behind the name, how well that
    attack does; gus, gus_z, gus_printed (poisoned runs); klom, disagreement (oracles); u_lira, u_lira_accuracy (shadow
    models, which have to be trained: `--shadows` or `--budget`; what that costs is said first).

    Example:

    `remanence audit run forgotten --forget hardest.json --oracles oracle1 oracle2 oracle3`

    `remanence audit forgotten --forget hardest.json --oracles oracle1 oracle2 --metrics u_lira --budget 10`

    Parameters
    ----------
    runs:
        What to audit: runs before unlearning, after it, or both.
    forget:
        The forget set, made by `remanence select`.
    oracles:
        Runs that were trained without the forget set (`remanence train --without`); others are refused.
    metrics:
        Which; by default all that can be computed with what is given.
    tolerance:
        How far from the oracles' mean counts as close, for metrics that are shares.
    shadows:
        Train so many shadow models for U-LiRA; an even number.
    budget:
        Or as many as can be trained in this many minutes.
    cache:
        Where shadow models are kept; they are never trained twice.
    workers:
        Processes that train shadow models; one a core by default.
    seed:
        Of the shadow models.
    out:
        Write the JSON document here too.
    json:
        Print one JSON document.
    """
    from remanence.audit.auditing import audit_runs, share_data
    from remanence.errors import InputError
    from remanence.forgetting import read_forget_set_for
    from remanence.training import open_run

    if not runs:
        raise InputError("Name a run to audit.")
    if not tolerance > 0:
        raise InputError(f"`tolerance` must be above 0; got {tolerance}.")
    opened, judges = ([open_run(path) for path in side] for side in (runs, oracles or []))
    share_data([*opened, *judges])
    chosen = read_forget_set_for(forget, opened[0])
    table = _shadows(
        opened, chosen, shadows, budget, cache, workers or os.cpu_count() or 1, seed, show=not json
    )
    with console.progress_bar(show=not json) as bar:
        task = bar.add_task("Asking the models", total=len(opened) + len(judges))
        audits = audit_runs(
            opened,
            chosen,
            judges,
            metrics=metrics or (),
            tolerance=tolerance,
            shadows=table,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    document = _document(audits)
    if out is not None:
        _write(out, document)
    if json:
        console.print_json(document)
        return
    for each in audits:
        _print(each, audits[0])
    _explain(audits)


def _shadows(
    runs: list[Run],
    forget_set: ForgetSet,
    shadows: int | None,
    budget: float | None,
    cache: Path,
    workers: int,
    seed: int,
    *,
    show: bool,
) -> ShadowTable | None:
    """Train the shadow models that are missing, after saying what it takes."""
    if shadows is None and budget is None:
        return None
    from remanence.audit.auditing import recipe_key
    from remanence.errors import InputError
    from remanence.experiments.shadows import plan_shadows, read_shadows, shadow_stages
    from remanence.stages import Store, run_stages

    if len({recipe_key(run) for run in runs}) > 1:
        raise InputError(
            "Shadow models are made as the audited run was; audit runs of different making one by one."
        )
    first = shadow_stages(runs[0], forget_set, 1, seed=seed)[0]
    allowed = None if budget is None else budget * 60 * workers
    plan = plan_shadows(first.task(), first.split(), first.steps, shadows=shadows, budget=allowed)
    stages, store = shadow_stages(runs[0], forget_set, plan.shadows, seed=seed), Store(cache / "shadows")
    store.sweep()
    there = sum(store.holds(stage) for stage in stages)
    console.note(f"{plan.sentence(workers)} on {workers} processes; {there} of them are in {cache} already.")
    with console.progress_bar(show=show) as bar:
        task = bar.add_task("Training shadow models", total=plan.shadows)
        run_stages(
            stages,
            store,
            workers=workers,
            on_start=lambda reused, todo: bar.update(task, completed=len(reused)),
            on_done=lambda stage: bar.advance(task),
        )
    return read_shadows(store, stages)


def _document(audits: list[Audit]) -> dict[str, Any]:
    return {
        "forget": audits[0].forget_set.name,
        "forget_size": len(audits[0].forget_set.ids),
        "oracles": audits[0].oracles,
        "audits": [
            {
                "run": str(each.run.folder.path),
                "unlearning": each.run.unlearning.get("method"),
                "noise_variance": None
                if each.noise is None
                else {"as_the_network_sees_it": each.noise[0], "on_standardized_inputs": each.noise[1]},
                "findings": [
                    {
                        "metric": finding.metric.name,
                        "meaning": finding.metric.meaning,
                        "at_oracle": finding.metric.at_oracle,
                        "better": finding.metric.better,
                        "value": finding.value,
                        "oracle_mean": finding.oracle_mean,
                        "oracle_sd": finding.oracle_sd,
                        "distance": finding.distance,
                        "tolerance": finding.tolerance,
                        "verdict": finding.verdict,
                    }
                    for finding in each.findings
                ],
            }
            for each in audits
        ],
    }


def _write(out: Path, document: dict[str, Any]) -> None:
    import json

    from remanence.storage import atomic

    atomic.write_text(out, json.dumps(document, indent=2, allow_nan=False) + "\n")


def _print(audit: Audit, first: Audit) -> None:
    """One run's table."""
    console.out.print(f"{audit.run.folder.path}", style="bold", soft_wrap=True, markup=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("metric", "value", "oracles", "distance", "verdict"):
        table.add_column(heading, no_wrap=True)
    for each in audit.findings:
        oracles, distance = "–", "–"
        if each.oracle_mean is not None:
            oracles, distance = f"{each.oracle_mean:.3f} ± {each.oracle_sd:.3f}", f"{each.distance:+.3f}"
        table.add_row(each.metric.name, f"{each.value:.3f}", oracles, distance, _words(each))
    console.out.print(table)
    before, now = (
        {each.metric.name: each.value for each in side.findings}.get("gus") for side in (first, audit)
    )
    if audit is not first and now is not None and before is not None:
        change = f"gus changed by {now - before:+.3f} since {first.run.folder.path}; the paper judges by that change."
        console.out.print(change, soft_wrap=True, markup=False)
    console.out.print()


def _explain(audits: list[Audit]) -> None:
    """What the metrics are, once, and what to keep in mind."""
    from remanence.audit.auditing import ENOUGH_FOR_KLOM

    metrics = {each.metric.name: each.metric for audit in audits for each in audit.findings}
    width = max(map(len, metrics))
    for name, metric in metrics.items():
        console.out.print(
            f"{name:{width}}  {metric.meaning}. An oracle: {metric.at_oracle}.", style="dim", soft_wrap=True
        )
    noise = next((each.noise for each in audits if each.noise is not None), None)
    if noise is not None and "gus" in metrics:
        console.out.print(
            f"The noise's variance is {noise[0]:.3g} on inputs as the network sees them, {noise[1]:.3g} on "
            "standardized ones.",
            soft_wrap=True,
        )
    if "klom" in metrics and audits[0].oracles < ENOUGH_FOR_KLOM:
        few = f"klom says little with {audits[0].oracles} oracles; its source takes a hundred."
        console.out.print(few, soft_wrap=True)


def _words(finding: Finding) -> str:
    words = {"within": "within", "below": "too low", "above": "too high", "unknown": "no oracles"}
    return f"{words[finding.verdict]} (±{finding.tolerance:.3g})"
