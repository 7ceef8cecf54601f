"""Which ids left a model when, by what method, and the bound on all of them together.

A run carries its whole past: `ledger.jsonl`, one row a request, and `removed.safetensors`, the gradient norms of all
that left, without their ids: sorted anew at every checkpoint and rounded up, so they still bound and no longer name.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.storage import Draft
from remanence.theory.group import group_loss
from remanence.training import Run
from remanence.types import Bound, Ids, Mechanism, NormTrace, positions_of

LEDGER = "ledger"
REMOVED = "removed"
FILES = ("ledger.jsonl", "removed.safetensors")
ALPHA = 8.0
_GRID = 1.05
_MOST = 12
"""Checkpoints that a group's bound is computed from; more change it little and cost much."""
Floats = NDArray[np.float64]


def past(run: Run) -> list[dict[str, Any]]:
    """The requests that this run has been through, oldest first."""
    return run.folder.rows(LEDGER) if run.folder.has("ledger.jsonl") else []


def norms_of(trace: NormTrace, ids: Ids) -> Floats:
    """[N, m] the norms of these examples, nameless: each row sorted, every value rounded up by at most 5 %."""
    found = trace.norms[:, positions_of(ids, trace.ids, what="the trace")].astype(np.float64)
    with np.errstate(divide="ignore"):
        cells = np.ceil(np.log(found) / np.log(_GRID))
    return np.sort(np.where(found > 0, _GRID**cells, 0.0), axis=1)


def removed_norms(run: Run, trace: NormTrace, ids: Ids) -> Floats:
    """[N, m] the nameless norms of everything that left this run, and of these examples."""
    own = norms_of(trace, ids)
    if not run.folder.has("removed.safetensors"):
        return own
    before = run.folder.tensors(REMOVED)["norms"].astype(np.float64)
    return np.sort(np.concatenate([before, own], axis=1), axis=1)


def group_bound(
    norms: Floats, steps: NDArray[np.int64], mechanism: Mechanism, *, alpha: float = ALPHA
) -> Bound:
    """How far a group moves the law of the trained model, at most, from its members' norms alone.

    Nothing is known of the angles between their gradients, so they are supposed to point one way.
    """
    kept = np.unique(np.linspace(0, len(steps) - 1, min(_MOST, len(steps))).round().astype(np.int64))
    grams = [np.outer(row, row) for row in norms[kept]]
    bound = group_loss(grams, steps=steps[kept], mechanism=mechanism, alpha=alpha, method="upper")
    supposed = "All gradients of the group are supposed to point one way; only their norms are known."
    return Bound(bound.value, bound.status, (*bound.assumptions, supposed), bound.formula)


def write_ledger(
    draft: Draft, rows: list[dict[str, Any]], norms: Floats, steps: NDArray[np.int64]
) -> list[str]:
    """Put a run's past into its folder; the names of the files."""
    draft.rows(LEDGER, rows)
    draft.tensors(REMOVED, {"norms": norms, "steps": steps})
    return list(FILES)


def bound_document(bound: Bound, what: str) -> dict[str, Any]:
    """A bound as plain values; an infinite one has no value."""
    plain = asdict(bound) | {"status": bound.status.value, "assumptions": list(bound.assumptions)}
    return {"what": what, **plain, "value": bound.value if np.isfinite(bound.value) else None}
