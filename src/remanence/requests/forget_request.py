"""Carry out a request: plan, unlearn, audit, write the evidence, seal."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from remanence.errors import InputError, RunFolderError
from remanence.experiments import cached_oracle, oracle_seed
from remanence.experiments.unlearn import Unlearned, unlearn_into, write_unlearned
from remanence.requests.calibration import FOLDER, Calibration, read_calibration
from remanence.requests.continuation import begin_continuation, finish_continuation, request_lock
from remanence.requests.criterion import monitored_settings
from remanence.requests.evidence import FILE, read_evidence
from remanence.requests.evidence_writer import evidence_document, write_evidence
from remanence.requests.plan import Plan, make_plan
from remanence.requests.remaining_artifacts import find_remaining_artifacts
from remanence.requests.request import ForgetOptions, Request, model_hash
from remanence.requests.request_audit import audit_request, not_measured, poison_metrics
from remanence.requests.request_ledger import (
    anonymous_norms,
    bound_document,
    group_bound,
    read_ledger,
    removed_norms,
    write_ledger,
)
from remanence.requests.signing import file_sha256
from remanence.storage import SEAL, Draft, open_folder, seal_in_place, write_trace
from remanence.storage.traces import TRACE_FILES
from remanence.training import Run, open_run
from remanence.training.train_run import Progress
from remanence.training.trust import trust_like
from remanence.types import Ids, Trace

_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, eq=False)
class ForgetResult:
    """A request that was carried out.

    Args:
        run: the new run.
        evidence: the content of its evidence.json.
        already: whether an earlier call had carried it out.
    """

    run: Run
    evidence: Mapping[str, Any] = field(repr=False)
    already: bool = False


def forget(
    run: Run,
    request: Request,
    out: Path,
    options: ForgetOptions | None = None,
    *,
    progress: Progress = lambda done, total: None,
    retraining: Progress = lambda done, total: None,
) -> ForgetResult:
    """Unlearn the examples of a request until the criterion holds; seal the new run together with its evidence.

    If it is interrupted, the same call continues and ends with the same weights. Until the new run is sealed, the
    request does not count as carried out. Only one request at a time is carried out on a run.

    Args:
        run: a calibrated run.
        request: the examples to remove.
        out: folder of the new run.
        options: how to carry it out.
        progress: called with the steps of unlearning and their maximum.
        retraining: called with the steps of the oracle and their total, if there is one.
    """
    options = options or ForgetOptions()
    source = run.folder.path
    _check_out(out, source)
    with request_lock(source):
        if (out / SEAL).exists():
            return _finished(run, request, out)
        started = datetime.now(UTC)
        calibration, trace = read_calibration(run), run.trace()
        plan = make_plan(run, request, calibration, trace)
        plan = replace(plan, budget=options.budget or plan.budget)
        begin_continuation(source, out, apart=options.apart)
        with _unlearn(run, plan, out, options.seed, progress) as unlearned:
            assert unlearned is not None  # the lock on the run is held, and `out` was not sealed
            oracle = _train_oracle(run, request, out, options.seed, retraining) if options.oracle else None
            audit = audit_request(run, plan, unlearned.model, oracle)
            files = _write_run(Draft(out), run, plan, unlearned, calibration, trace)
            ledger = [*read_ledger(run), _ledger_row(plan, options, unlearned, trace, out)]
            files += write_ledger(Draft(out), ledger, removed_norms(run, trace, request.ids), trace.steps)
            models = {row["model_before"] for row in ledger}
            places = options.look_in or (source.resolve().parent, out.resolve().parent)
            evidence = evidence_document(
                run,
                plan,
                options,
                actual=_actual(plan, unlearned, started),
                audit=audit,
                not_measured=not_measured(run, request, oracle),
                ledger=ledger,
                out=out,
                files=files,
                remaining=find_remaining_artifacts(run, models, request.ids, places, skip=out),
            )
            finish_continuation(source, out, ledger[-1]["model_after"])
            seal_in_place(out, "training", [*files, *write_evidence(out, evidence)])
            trust_like(open_folder(out, "training"), run.settings.model, run.folder)
    return ForgetResult(open_run(out, builder=run.builder), evidence)


def _check_out(out: Path, source: Path) -> None:
    if out.resolve() == source.resolve() or source.resolve() in out.resolve().parents:
        raise InputError(f"`out` must be a folder outside of {source}; got {out}.")


def _finished(run: Run, request: Request, out: Path) -> ForgetResult:
    """The result of an earlier call for the same request; any other run in `out` is refused."""
    made = open_run(out, builder=run.builder)
    rows = read_ledger(made)[-1:]
    if not any(
        row["model_before"] == model_hash(run) and set(row["ids"]) == set(request.ids.tolist())
        for row in rows
    ):
        raise RunFolderError(f"{out} holds a finished run; choose another `out`. Nothing was changed.")
    return ForgetResult(made, read_evidence(out / FILE), already=True)


def _unlearn(
    run: Run, plan: Plan, out: Path, seed: int, progress: Progress
) -> AbstractContextManager[Unlearned | None]:
    request, metrics = plan.request, poison_metrics(run, plan.request)
    return unlearn_into(
        out,
        run,
        request.forget_set,
        monitored_settings(run, plan.method, plan.options, plan.budget, seed, metrics),
        resume=True,
        progress=progress,
        until=plan.criterion.holds,
        facts={"criterion": asdict(plan.criterion), "file_sha256": request.file_sha256},
    )


def _train_oracle(run: Run, request: Request, out: Path, seed: int, progress: Progress) -> Run:
    return cached_oracle(run, request.forget_set, out / "oracle", seed=oracle_seed(seed), progress=progress)


def _write_run(
    draft: Draft, run: Run, plan: Plan, unlearned: Unlearned, calibration: Calibration, trace: Trace
) -> list[str]:
    """Write the new run, its trace and its calibration, all without the removed examples."""
    ids = plan.request.ids
    poison = [example for example in run.settings.poison if example not in set(ids.tolist())]
    unlearning = unlearned.config["unlearning"] | {"steps": unlearned.steps, "budget": plan.budget}
    config = unlearned.config | {"poison": poison, "unlearning": unlearning}
    files = write_unlearned(draft, run, replace(unlearned, config=config))
    write_trace(draft, _without(trace, ids))
    shutil.rmtree(draft.path / FOLDER, ignore_errors=True)  # of an attempt that was killed
    calibration.without(ids).write(draft.path / FOLDER, file_sha256(draft.path / _WEIGHTS))
    return [*files, *TRACE_FILES]


def _without(trace: Trace, ids: Ids) -> Trace:
    keep = ~np.isin(trace.ids, ids)
    columns = ("norms", "confidence", "error", "moments")
    kept = {name: values[:, keep] for name in columns if (values := getattr(trace, name)) is not None}
    return replace(trace, ids=trace.ids[keep], **kept)


def _ledger_row(
    plan: Plan, options: ForgetOptions, unlearned: Unlearned, trace: Trace, out: Path
) -> dict[str, Any]:
    ids = plan.request.ids
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "request": plan.request.forget_set.name,
        "size": len(ids),
        "ids": ids.tolist(),
        "salt": secrets.token_hex(16),
        "method": plan.method,
        "options": dict(plan.options),
        "seed": options.seed,
        "steps": unlearned.steps,
        "reached": plan.criterion.holds(unlearned.rows),
        "model_before": plan.model,
        "model_after": file_sha256(out / _WEIGHTS),
        "bound": bound_document(
            group_bound(anonymous_norms(trace, ids), trace), "group loss of this request"
        ),
        "cumulative": bound_document(plan.bound, "group loss of all removed examples"),
    }


def _actual(plan: Plan, unlearned: Unlearned, started: datetime) -> dict[str, Any]:
    duration = plan.criterion.time(unlearned.rows)
    inside = plan.forecast.low <= duration.value <= plan.forecast.high
    return {
        "reached": duration.reached,
        "steps": duration.value,
        "stopped_at": unlearned.steps,
        "budget": plan.budget,
        "inside_interval": bool(inside) and duration.reached,
        "seconds": (datetime.now(UTC) - started).total_seconds(),
    }
