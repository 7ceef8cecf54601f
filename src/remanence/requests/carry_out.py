"""Carry out a request: unlearn until the criterion holds, and leave a run with its past and its evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import nn

from remanence.errors import InputError, RunFolderError
from remanence.experiments import UnlearnSettings, cached_oracle, unlearn_run
from remanence.experiments.unlearned import Rows
from remanence.requests.calibration import Calibration, model_hash, read_calibration
from remanence.requests.evidence import read_evidence
from remanence.requests.findings import POISONED, planted
from remanence.requests.ledger import past
from remanence.requests.papers import Orders, Papers
from remanence.requests.plan import Plan, make_plan
from remanence.requests.request import Request
from remanence.requests.stages import SAMPLE, WATCHED, watch_steps
from remanence.storage import SEAL, Draft, atomic
from remanence.storage.lock import exclusive, is_held
from remanence.training import Run, open_run

_MARK = ".request.json"
_LOCK = ".request.lock"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a request.

    Args:
        run: the new run.
        evidence: its document.
        already: it had been carried out before; nothing was done.
    """

    run: Run
    evidence: Mapping[str, Any] = field(repr=False)
    already: bool = False


def forget(
    run: Run,
    request: Request,
    out: Path,
    orders: Orders | None = None,
    *,
    progress: Progress = lambda done, total: None,
    retraining: Progress = lambda done, total: None,
) -> Outcome:
    """Unlearn a request's examples until the criterion holds, up to a budget; seal the new run with its evidence.

    Killed at any moment, the same call goes on and ends with the same weights; until the new run is sealed, nothing
    has been done. One request at a time on a run. `progress` hears of the steps of unlearning, `retraining` of those
    of the model without the examples, where one is asked for.
    """
    orders = orders or Orders()
    source = run.folder.path
    if out.resolve() == source.resolve() or source.resolve() in out.resolve().parents:
        raise InputError(f"--out must be a folder outside of {source}; got {out}.")
    if orders.budget is not None and orders.budget < 1:
        raise InputError(f"`budget` must be at least 1 step; got {orders.budget}.")
    with exclusive(source / _LOCK, _busy(source)):
        if (out / SEAL).exists():
            return _finished(run, request, out)
        calibration = read_calibration(run)
        plan = make_plan(run, request, calibration)
        _mark(source, out, apart=orders.apart)
        made = _unlearn(run, plan, calibration, out, orders, progress, retraining)
    return Outcome(made, read_evidence(out / "evidence.json"))


def _finished(run: Run, request: Request, out: Path) -> Outcome:
    """The run that this very request has made; anything else in its place is refused."""
    made = open_run(out)
    rows = past(made)
    same = (
        rows
        and rows[-1]["model_before"] == model_hash(run)
        and set(rows[-1]["ids"]) == set(request.ids.tolist())
    )
    if not same:
        raise RunFolderError(f"{out} holds a finished run; choose another --out. Nothing was changed.")
    return Outcome(made, read_evidence(out / "evidence.json"), already=True)


def continuation(source: Path) -> Path | None:
    """Where a run goes on: the folder of the request that was begun from it, if that is still there."""
    mark = source / _MARK
    if not mark.exists():
        return None
    other = Path(json.loads(mark.read_text())["out"])
    return other if other.exists() else None


def refuse_second(source: Path, out: Path) -> None:
    """Refuse a request while another is at work on the run, and one that would begin a second way from it."""
    if is_held(source / _LOCK):
        raise RunFolderError(_busy(source))
    _refuse_second_way(source, out)


def _refuse_second_way(source: Path, out: Path) -> None:
    other = continuation(source)
    if other is not None and other != out.resolve():
        raise RunFolderError(
            f"{source} goes on in {other}: begin from there, so that what left it stays away (or add --apart)."
            if (other / SEAL).exists()
            else f"An unfinished request on {source} is in {other}; finish it with the command that began it, or "
            "delete that folder. Nothing was changed."
        )


def _busy(source: Path) -> str:
    return f"Another request is being carried out on {source}; wait for it. Nothing was changed."


def _mark(source: Path, out: Path, *, apart: bool) -> None:
    """Note on the old run where it goes on; refuse to begin a second way from it unless that is meant."""
    if not apart:
        _refuse_second_way(source, out)
    atomic.write_text(source / _MARK, json.dumps({"out": str(out.resolve())}) + "\n")


def _unlearn(
    run: Run,
    plan: Plan,
    calibration: Calibration,
    out: Path,
    orders: Orders,
    progress: Progress,
    retraining: Progress,
) -> Run:
    budget = orders.budget or plan.budget
    settings = UnlearnSettings(
        plan.method,
        plan.options,
        steps=budget,
        seed=orders.seed,
        metrics=(*WATCHED, *(POISONED if planted(run, plan) else ())),
        at=watch_steps(run, budget),
        sample=SAMPLE,
    )
    started = datetime.now(UTC)

    def also(draft: Draft, model: nn.Module, rows: Rows) -> Sequence[str]:
        oracle = _oracle(run, plan, out, orders, retraining)
        return Papers(run, plan, calibration, orders, budget, started, oracle).write(draft, model, rows)

    return unlearn_run(
        run,
        plan.request.forget_set,
        settings,
        out,
        resume=True,
        progress=progress,
        until=plan.criterion.holds,
        also=also,
        facts={"criterion": plan.criterion.document(), "file_sha256": plan.request.file_sha256},
    )


def _oracle(run: Run, plan: Plan, out: Path, orders: Orders, progress: Progress) -> Run | None:
    if not orders.oracle:
        return None
    return cached_oracle(
        run, plan.request.forget_set, out / "oracle", seed=orders.seed + 1, progress=progress
    )
