"""Carry out a request by training a new model without the examples."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from remanence.audit import Context
from remanence.experiments import UnlearnSettings, cached_oracle, measure, oracle_seed
from remanence.experiments.unlearn import Unlearned, describe, private_settings, split_to_unlearn
from remanence.requests.criterion import MONITORED, SAMPLE, STOPPING_HALF, stopping_split
from remanence.storage import SEAL
from remanence.storage.lock import exclusive
from remanence.storage.unfinished import UNFINISHED, claim, reclaim
from remanence.training import Run
from remanence.training.train_run import Progress
from remanence.types import ForgetSet
from remanence.unlearning import make_method

_FOLDER = "retraining"
_ANOTHER = 1
"""Index of the seed: `--oracle` trains with the first, and must not be compared with itself."""
_MAY_DIFFER = (
    "poison",
    *(
        f"unlearning.{name}"
        for name in (
            "method",
            "options",
            "recipe",
            "seed",
            "metrics",
            "every",
            "at",
            "sample",
            "half",
            "steps",
            "budget",
            "criterion.not_before",
        )
    ),
)
"""Retraining may follow an attempt to unlearn: only the request itself has to be the same."""


@contextmanager
def retrain_into(
    out: Path,
    run: Run,
    forget_set: ForgetSet,
    *,
    seed: int,
    progress: Progress,
    facts: Mapping[str, Any],
    context: Context,
) -> Iterator[Unlearned]:
    """Train a model without the examples, under the lock of its folder; the `with` block writes and seals the new run.

    If it is interrupted, the next call continues. An attempt to unlearn the same examples in `out` is replaced.

    Args:
        out: folder of the new run.
        run: the run to remove the examples from.
        forget_set: the examples.
        seed: random seed of the training.
        progress: called with the steps taken and the total.
        facts: further entries of the run's table `[unlearning]`.
        context: what is needed to measure beyond the data of the run.
    """
    split = split_to_unlearn(run, forget_set)
    settings = UnlearnSettings("retrain", seed=seed, metrics=MONITORED, sample=SAMPLE, half=STOPPING_HALF)
    method = make_method("retrain", {}, run.settings.recipe)
    steps = method.recipe.total_steps(len(split.retain))
    description = describe(run, forget_set, settings, method) | {"steps": steps} | dict(facts)
    config = asdict(run.settings) | {"unlearning": description}
    if (out / SEAL).exists() or (out / UNFINISHED).exists():
        reclaim(config, out, ignore=(*_MAY_DIFFER, *private_settings(out)))
    claim(config, out, resume=True)
    with exclusive(out / ".lock-0", f"Another process is retraining in {out}; wait for it."):
        retrained = cached_oracle(
            run, forget_set, out / _FOLDER, seed=oracle_seed(seed, _ANOTHER), progress=progress
        )
        model = retrained.model()
        rows = measure(model, stopping_split(split, seed), MONITORED, step=steps, seed=seed, context=context)
        yield Unlearned(model, rows, steps, config)
        for folder in (_FOLDER, "checkpoints"):
            shutil.rmtree(out / folder, ignore_errors=True)
        (out / UNFINISHED).unlink(missing_ok=True)
