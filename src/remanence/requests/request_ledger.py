"""The ledger of a run: the requests that were carried out on it, and a bound on all of them together.

It is private (mode 0600). `ledger.jsonl` has one row per request, with the ids; `ledger-ids.json` has the ids of all
examples that the run has forgotten, which no other file of it names. `removed.safetensors` has the gradient norms of
all removed examples without their ids: sorted at every checkpoint and rounded up, so that they still give a bound but
no longer identify an example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from remanence.errors import RunFolderError
from remanence.requests.signing import reference_of
from remanence.storage import Draft
from remanence.theory.group import group_loss
from remanence.theory.justification import interpolation_reasons
from remanence.training import Run
from remanence.training.run_folder import FORGOTTEN_IDS
from remanence.types import Bound, Ids, Trace, positions_of

_ALPHA = 8.0
_LEDGER, _REMOVED = "ledger", "removed"
_FILES = ("ledger.jsonl", "removed.safetensors", FORGOTTEN_IDS)
_PRIVATE = ("ids", "salt", "request", "person", "list_sha256")
_GRID = 1.05
_MOST = 12
"""Number of checkpoints that a group's bound is computed from; more change it little and cost much."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _BoundRow:
    """A bound, as `bound_document` gives it."""

    what: str
    value: float | None
    status: Literal["certificate", "estimate", "heuristic", "vacuous"]
    assumptions: tuple[str, ...]
    formula: str


@dataclass(frozen=True)
class _Row:
    """One row of the ledger."""

    when: str
    request: str
    size: int
    ids: tuple[int | str, ...]
    salt: str
    method: str
    options: Mapping[str, Any]
    seed: int
    steps: int
    reached: bool
    outcome: Literal["forgotten", "not forgotten", "carried out, not judged", "retrained"]
    model_before: str
    model_after: str
    bound: _BoundRow
    cumulative: _BoundRow
    person: str = ""
    list_sha256: str = ""
    seconds: float = 0.0
    together: int = 1
    part_of: str = ""


def read_ledger(run: Run) -> list[dict[str, Any]]:
    """The requests that were carried out on this run, oldest first."""
    if not run.folder.has(_FILES[0]):
        return []
    run.folder.records(_LEDGER, _Row)
    return run.folder.rows(_LEDGER)


def is_batch(row: Mapping[str, Any]) -> bool:
    """Whether a row is about several requests together, each of which has a row of its own before it."""
    return row.get("together", 1) > 1 and not row.get("part_of")


def write_ledger(
    draft: Draft,
    rows: Sequence[Mapping[str, Any]],
    norms: Floats,
    steps: NDArray[np.int64],
    forgotten: Sequence[int | str],
) -> list[str]:
    """Write the ledger, the norms and the ids of all removed examples; returns the names of the files."""
    draft.rows(_LEDGER, rows)
    draft.tensors(_REMOVED, {"norms": norms, "steps": steps})
    draft.document(Path(FORGOTTEN_IDS).stem, {"forgotten": list(forgotten)})
    for name in _FILES:
        draft.file(name).chmod(0o600)
    return list(_FILES)


def public_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ledger without ids, persons, lists and salts."""
    return [
        {"reference": reference_of(row["salt"])}
        | {key: value for key, value in row.items() if key not in _PRIVATE}
        for row in rows
    ]


def anonymous_norms(trace: Trace, ids: Ids) -> Floats:
    """[N, m] the norms of these examples without names: each row sorted, every value rounded up by at most 5 %."""
    norms = trace.norms[:, positions_of(ids, trace.ids, what="the trace")].astype(np.float64)
    with np.errstate(divide="ignore"):
        cells = np.ceil(np.log(norms) / np.log(_GRID))
    return np.sort(np.where(norms > 0, _GRID**cells, 0.0), axis=1)


def removed_norms(run: Run, trace: Trace, ids: Ids) -> Floats:
    """[N, m] the anonymous norms of everything that was removed from this run, and of these examples."""
    own = anonymous_norms(trace, ids)
    if not run.folder.has(_FILES[1]):
        return own
    earlier = run.folder.tensors(_REMOVED, norms="f2")["norms"].astype(np.float64)
    if len(earlier) != len(own):
        raise RunFolderError(
            f"{run.folder.path / _FILES[1]} is damaged: expected {len(own)} rows of norms; got {len(earlier)}."
        )
    return np.sort(np.concatenate([earlier, own], axis=1), axis=1)


def group_bound(norms: Floats, trace: Trace) -> Bound:
    """A bound on how much a group changes the distribution of the trained model, from the norms of its members.

    The angles between their gradients are not recorded, so all gradients are assumed to point in the same direction.
    """
    steps = trace.steps
    kept = np.unique(np.linspace(0, len(steps) - 1, min(_MOST, len(steps))).round().astype(np.int64))
    grams = [np.outer(row, row) for row in norms[kept]]
    bound = group_loss(grams, steps=steps[kept], mechanism=trace.mechanism, alpha=_ALPHA, method="upper")
    assumption = (
        "All gradients of the group are assumed to point in the same direction; only their norms are known."
    )
    assumptions = (*bound.assumptions, assumption, *interpolation_reasons(trace))
    return Bound(bound.value, bound.status, assumptions, bound.formula)


def bound_document(bound: Bound, what: str) -> dict[str, Any]:
    """A bound as JSON values; an infinite one has no value."""
    plain = asdict(bound) | {"status": bound.status.value, "assumptions": list(bound.assumptions)}
    return {"what": what, **plain, "value": bound.value if np.isfinite(bound.value) else None}
