"""Which metrics can be computed for a run, from what an audit is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from remanence.audit.context import Context
from remanence.audit.klom import FEWEST as FEWEST_FOR_KLOM
from remanence.audit.metric import Metric, Need
from remanence.audit.registry import METRICS, metrics_named
from remanence.audit.relearning import Relearn
from remanence.errors import InputError
from remanence.training import Run
from remanence.types import ForgetSet

DEFAULT_METRICS = ("ua", "ra", "test", "mia", "mia_accuracy", "mia_confidence", "mia_loss", "mia_entropy")
_HOW_TO_GET: dict[Need, str] = {
    "poison": "a run whose forget set was poisoned",
    "oracles": "oracles; pass `oracles`",
    "shadows": "shadows; pass `shadows`",
    "the original model": "the model before unlearning; pass the run that was unlearned in `runs`, too",
    "people": "people and the model before unlearning; pass `people`, and the run that was unlearned in `runs`",
    "relearning": "relearning; pass `relearning`",
    "canaries": "a run with canaries; pass `canaries` when you train it",
}


def parent_of(run: Run, runs: Sequence[Run], views: Sequence[Any]) -> int | None:
    """Position of the run that this one was unlearned from, if it is among those audited on the same split."""
    digest, own = run.unlearning.get("parent"), views[runs.index(run)]
    positions = (
        i for i, view in enumerate(views) if digest and view == own and runs[i].folder.digest() == digest
    )
    return next(positions, None)


def available(
    run: Run,
    forget_set: ForgetSet,
    oracles: Sequence[Run],
    shared: Context,
    relearning: Relearn | None,
    parent: int | None,
) -> dict[Need, bool]:
    """What this run's metrics can read."""
    return {
        "poison": run.poison is not None and bool(np.isin(forget_set.ids, run.poison.ids).any()),
        "oracles": bool(oracles),
        "shadows": shared.shadows is not None,
        "the original model": parent is not None,
        "people": parent is not None and shared.people is not None,
        "relearning": relearning is not None,
        "canaries": run.canaries is not None,
    }


def choose_metrics(
    run: Run, names: Sequence[str], available: Mapping[Need, bool], oracles: int, alike: int
) -> list[Metric]:
    """The metrics of these names, which must be computable; without names, all that are.

    `alike` runs differ only in their seeds.
    """
    if not names:
        extra = [name for name, metric in METRICS.items() if metric.needs and available[metric.needs]]
        skipped = () if min(oracles, alike) >= FEWEST_FOR_KLOM else ("klom",)
        usual = metrics_named([*DEFAULT_METRICS, *(name for name in extra if name not in skipped)])
        return usual if run.clean[0].has_classes else [metric for metric in usual if not metric.of_classes]
    chosen = metrics_named(names)
    for metric in chosen:
        if metric.needs == "poison" and not available["poison"]:
            reason = "was not" if run.poison is None else "was poisoned with other examples"
            raise InputError(
                f"`{metric.name}` needs a run whose forget set was poisoned; {run.folder.path} {reason}."
            )
        if metric.needs and not available[metric.needs]:
            raise InputError(f"`{metric.name}` needs {_HOW_TO_GET[metric.needs]}.")
        if metric.name == "klom" and min(oracles, alike) < FEWEST_FOR_KLOM:
            raise InputError(
                f"`klom` needs at least {FEWEST_FOR_KLOM} oracles and as many runs that differ only in their "
                f"seeds; got {oracles} and {alike}."
            )
    return chosen
