"""The gate on base models: a study decides nothing about models that have not memorised their data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from remanence.stages import Stage, in_order
from remanence.storage import Folder
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Role, Table, Wanted
from remanence.study.settings import GateSection
from remanence.study.train_stages import Train

TITLE = "Base models"


def gated_models(graph: Graph, stages: Iterable[Stage]) -> Wanted:
    """A measurement of every training run of the study's seeds among the inputs of these stages."""
    seeds = graph.study.seed_numbers
    runs = [stage for stage in in_order(list(stages)) if isinstance(stage, Train) and stage.poison is None]
    return [
        ({"role": "base", "seed": run.seed, "noise": run.task.recipe.noise}, graph.base(run))
        for run in runs
        if run.seed in seeds
    ]


def apply_gate(result: Result, parts: Parts, settings: FigureSettings) -> Result:
    """The result with a table of its base models, and without verdicts if one of them fails or was explored."""
    models = list(parts.all("base"))
    why = _failures(models, settings.gate) or _explored(models, settings.explored)
    verdicts = [replace(verdict, withheld=why) for verdict in result.verdicts] if why else result.verdicts
    tables = {**result.tables, TITLE: _table(models, settings.gate)} if models else result.tables
    return replace(result, verdicts=verdicts, tables=tables)


def passes(document: dict[str, float], gate: GateSection) -> bool:
    """Whether a base model may decide something."""
    return document["train_accuracy"] >= gate.train_accuracy and document["attack"] >= gate.attack


def _failures(models: Sequence[tuple[Role, Folder]], gate: GateSection) -> str:
    failed = [role for role, folder in models if not passes(folder.document("base"), gate)]
    if not failed:
        return ""
    return (
        f"{len(failed)} of {len(models)} base models did not pass the gate (train accuracy at least "
        f"{gate.train_accuracy:g}, membership attack at least {gate.attack:g}), so the study decides nothing."
    )


def _explored(models: Sequence[tuple[Role, Folder]], explored: int) -> str:
    if not any(role["seed"] < explored for role, _ in models):
        return ""
    return (
        f"The seeds below {explored} were looked at while the settings were chosen, so they decide nothing."
    )


def _table(models: Sequence[tuple[Role, Folder]], gate: GateSection) -> Table:
    rows = []
    for role, folder in models:
        base = folder.document("base")
        noise = [f"{role['noise']:g}"] if any(other["noise"] for other, _ in models) else []
        numbers = [f"{base[name]:.3f}" for name in ("train_accuracy", "test_accuracy", "attack", "auc")]
        rows.append((str(role["seed"]), *noise, *numbers, "yes" if passes(base, gate) else "no"))
    noise = ["noise"] if models and len(rows[0]) > 6 else []
    header = (
        "seed",
        *noise,
        f"train accuracy (gate: {gate.train_accuracy:g})",
        "test accuracy",
        f"membership attack (gate: {gate.attack:g})",
        "AUC of log-odds",
        "passes",
    )
    return Table(header, tuple(rows))
