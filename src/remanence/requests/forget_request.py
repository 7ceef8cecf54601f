"""Carry out a request: plan, unlearn, audit, write the evidence, seal."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from remanence.audit import Context
from remanence.audit.relearning import Relearn
from remanence.errors import InputError
from remanence.experiments import Relearning, announced, cached_oracle, oracle_seed
from remanence.experiments.unlearn import Unlearned, unlearn_into, write_unlearned
from remanence.requests.calibration import FOLDER, Calibration, find_calibration
from remanence.requests.continuation import (
    begin_continuation,
    finish_continuation,
    request_lock,
)
from remanence.requests.criterion import monitored_settings
from remanence.requests.earlier_attempt import (
    begun_budget,
    budget_of_attempt,
    criterion_of_attempt,
    earlier_result,
    goes_on,
    number_of_looks,
    superseded_digest,
)
from remanence.requests.evidence import evidence_folder
from remanence.requests.evidence_writer import evidence_document, method_document, write_evidence
from remanence.requests.forget_result import ForgetResult
from remanence.requests.judged_request import Attempt, JudgedRequest, Stopwatch
from remanence.requests.model_signature import sign_model
from remanence.requests.outcome import Outcome, outcome_of_all
from remanence.requests.plan import Plan, make_plan, part_of_plan
from remanence.requests.remaining_artifacts import RemainingArtifact, find_remaining_artifacts
from remanence.requests.request import ForgetOptions, Request, together
from remanence.requests.request_audit import not_measured, poison_metrics
from remanence.requests.request_ledger import (
    anonymous_norms,
    bound_document,
    group_bound,
    is_batch,
    read_ledger,
    removed_norms,
    write_ledger,
)
from remanence.requests.retraining import retrain_into
from remanence.requests.signing import file_sha256, reference_of
from remanence.requests.verdict_signals import excess_context
from remanence.scores import score_table
from remanence.storage import SEAL, Draft, open_folder, seal_in_place, write_trace
from remanence.storage.traces import TRACE_FILES
from remanence.training import Run, open_run
from remanence.training.train_run import Progress
from remanence.training.trust import trust_like
from remanence.types import OPTIONAL_COLUMNS, ForgetSet, Ids, Trace

_WEIGHTS = "weights.safetensors"
_PRIVATE = ("forget", "forgotten", "file_sha256")
"""Entries of a run's table `[unlearning]` that name the examples or their list."""


def forget(
    run: Run,
    request: Request | Sequence[Request],
    out: Path,
    options: ForgetOptions | None = None,
    *,
    progress: Progress = lambda done, total: None,
    retraining: Progress = lambda done, total: None,
    note: Callable[[str], None] = lambda sentence: None,
) -> ForgetResult:
    """Unlearn the examples of a request until the criterion holds; seal the new run together with its evidence.

    If it is interrupted, the same call continues and ends with the same weights. Until the new run is sealed, the
    request does not count as carried out. Only one request at a time is carried out on a run. When the outcome is *not
    forgotten*, the same call with `resume`, with a larger `budget` or with `method="retrain"` goes on in that folder.

    Several requests are unlearned together, and each has a verdict and evidence of its own, in `out`/evidence-1,
    `out`/evidence-2 and so on; `out`/evidence.json is about all of them.

    Args:
        run: a run with a trace. Without a calibration, the outcome is *carried out, not judged*.
        request: the examples to remove; or several requests, which may overlap.
        out: folder of the new run.
        options: how to carry it out.
        progress: called with the steps of unlearning and their maximum.
        retraining: called with the steps of the oracle and their total, if there is one.
        note: called with the cost of the relearning test before it begins.
    """
    options = options or ForgetOptions()
    requests = [request] if isinstance(request, Request) else list(request)
    whole = together(requests)
    source = run.folder.path
    _check_out(out, source)
    with request_lock(source):
        earlier = earlier_result(run, requests, out) if (out / SEAL).exists() else None
        if earlier is not None and not goes_on(earlier, options):
            rows = read_ledger(earlier.run)
            return replace(earlier, remaining=tuple(_remaining(run, whole, rows, out, options)))
        started = datetime.now(UTC)
        calibration, trace = find_calibration(run), run.trace()
        plan = make_plan(run, whole, calibration, trace)
        plan = replace(
            plan,
            budget=budget_of_attempt(plan, out, options, earlier),
            criterion=criterion_of_attempt(plan, out),
        )
        begin_continuation(source, out, apart=options.apart)
        watch = Stopwatch(progress)
        with _carry_out(run, plan, out, options, watch) as unlearned:
            assert unlearned is not None  # the lock on the run is held, and `out` was not sealed
            oracle = _train_oracle(run, whole, out, options.seed, retraining) if options.oracle else None
            seconds = watch.seconds(unlearned.steps)
            attempt = Attempt(
                run,
                None if calibration is None else calibration.pool,
                options,
                unlearned,
                plan,
                oracle,
                seconds,
                number_of_looks(out),
            )
            relearning = announced(Relearning(seed=options.seed), 1 + (oracle is not None), note)
            judged = _judge_all(attempt, requests, calibration, trace, relearning)
            kept = calibration if options.keep_calibration else None
            files = _write_run(Draft(out), run, plan, unlearned, kept, trace)
            rows = _ledger_rows(judged, attempt, trace, out)
            ledger = [*read_ledger(run), *rows]
            norms = removed_norms(run, trace, whole.ids)
            files += write_ledger(
                Draft(out), ledger, norms, trace.steps, unlearned.config["unlearning"]["forgotten"]
            )
            remaining = _remaining(run, whole, ledger, out, options)
            documents = [
                _evidence(attempt, part, number, ledger, out, files, remaining, started)
                for number, part in enumerate(judged)
            ]
            settled = judged[0].outcome is not Outcome.NOT_FORGOTTEN
            if settled:
                finish_continuation(source, out, ledger[-1]["model_after"])
            files += _write_all(out, documents)
            if options.model_key is not None:
                files += sign_model(out, options.model_key, documents[0]["model"]["after"]["files"])
            seal_in_place(out, "training", files)
            if settled:
                shutil.rmtree(out / "checkpoints", ignore_errors=True)  # nothing is left to continue
            trust_like(open_folder(out, "training"), run.settings.code, run.folder)
    made = open_run(out, task=run.given_task, device=run.settings.device)
    return ForgetResult(made, documents[0], remaining=tuple(remaining), parts=tuple(documents[1:]))


def _remaining(
    run: Run, request: Request, ledger: Sequence[Mapping[str, Any]], out: Path, options: ForgetOptions
) -> list[RemainingArtifact]:
    models = {row["model_before"] for row in ledger}
    places = options.look_in or (run.folder.path.resolve().parent, out.resolve().parent)
    return find_remaining_artifacts(run, models, request.ids, places, skip=out)


def _judge_all(
    attempt: Attempt,
    requests: Sequence[Request],
    calibration: Calibration | None,
    trace: Trace,
    relearning: Relearn,
) -> list[JudgedRequest]:
    """All requests together; then, if there are several, each of them."""
    whole = attempt.judge(attempt.whole, relearning if attempt.options.relearning else None)
    parts: list[JudgedRequest] = []
    if len(requests) > 1:
        table = score_table(trace)
        for request in requests:
            plan = part_of_plan(
                attempt.whole, attempt.run, request, calibration, table, together=len(requests)
            )
            parts.append(attempt.judge(plan, None))
    outcome = outcome_of_all(whole.outcome, [part.outcome for part in parts])
    return [replace(whole, outcome=outcome), *parts]


def _evidence(
    attempt: Attempt,
    part: JudgedRequest,
    number: int,
    ledger: Sequence[Mapping[str, Any]],
    out: Path,
    files: Sequence[str],
    remaining: Sequence[RemainingArtifact],
    started: datetime,
) -> dict[str, Any]:
    """The evidence about all requests (number 0) or about one of a batch; its own row is the last that it lists."""
    batch = ledger[-ledger[-1]["together"] - 1 :] if is_batch(ledger[-1]) else ledger[-1:]
    own = batch[number - 1]
    seconds = (datetime.now(UTC) - started).total_seconds()
    options = attempt.options
    sentences = not_measured(
        attempt.run, part.plan.request, attempt.oracle, options.relearning, attempt.pool is not None
    )
    if number and options.relearning:
        sentences.insert(0, "Relearning: it was measured for all requests together.")
    return evidence_document(
        attempt.run,
        part.plan,
        options,
        actual=part.actual | {"seconds": seconds, "together": own["together"]},
        audit=part.audit,
        not_measured=[*sentences, *part.reasons],
        ledger=[*(row for row in ledger if row is not own), own],
        out=out,
        files=files,
        remaining=remaining,
        supersedes=superseded_digest(out / evidence_folder(number), attempt.whole.budget),
    )


def _write_all(out: Path, documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the evidence about all requests, and about each of a batch; returns the names of the files."""
    names = []
    for number, document in enumerate(documents):
        folder = evidence_folder(number)
        (out / folder).mkdir(exist_ok=True)
        names += [(Path(folder) / name).as_posix() for name in write_evidence(out / folder, document)]
    return names


def _check_out(out: Path, source: Path) -> None:
    if out.resolve() == source.resolve() or source.resolve() in out.resolve().parents:
        raise InputError(f"`out` must be a folder outside of {source}; got {out}.")


def _carry_out(
    run: Run, plan: Plan, out: Path, options: ForgetOptions, progress: Progress
) -> AbstractContextManager[Unlearned | None]:
    request, metrics = plan.request, poison_metrics(run, plan.request)
    # measurements and settings carry the name of the forget set, which is often that of a list or a person
    forget_set = ForgetSet("request", request.ids)
    facts = {"criterion": asdict(plan.criterion), "file_sha256": request.file_sha256}
    context = Context() if plan.excess is None else excess_context(plan.excess)
    if options.method == "retrain":
        return retrain_into(
            out, run, forget_set, seed=options.seed, progress=progress, facts=facts, context=context
        )
    return unlearn_into(
        out,
        run,
        forget_set,
        monitored_settings(run, plan.method, plan.options, plan.budget, options.seed, metrics),
        resume=True,
        progress=progress,
        until=plan.criterion.holds,
        facts=facts,
        longer=(out / SEAL).exists() or plan.budget > (begun_budget(out) or plan.budget),
        keep_checkpoints=True,
        context=context,
    )


def _train_oracle(run: Run, request: Request, out: Path, seed: int, progress: Progress) -> Run:
    oracle = cached_oracle(run, request.forget_set, out / "oracle", seed=oracle_seed(seed), progress=progress)
    (out / "oracle").chmod(0o700)  # its settings list the examples that it was trained without
    return oracle


def _write_run(
    draft: Draft, run: Run, plan: Plan, unlearned: Unlearned, calibration: Calibration | None, trace: Trace
) -> list[str]:
    """Write the new run, its trace and its calibration, all without the removed examples."""
    ids = plan.request.ids
    removed = set(ids.tolist())
    marked = {
        name: [example for example in getattr(run.settings, name) if example not in removed]
        for name in ("poison", "canaries")
    }
    unlearning = unlearned.config["unlearning"] | {"steps": unlearned.steps, "budget": plan.budget}
    # the ids and the name of the list are in the private ledger only
    public = {name: value for name, value in unlearning.items() if name not in _PRIVATE}
    config = unlearned.config | marked | {"unlearning": public}
    files = write_unlearned(draft, run, replace(unlearned, config=config))
    write_trace(draft, _without(trace, ids))
    shutil.rmtree(draft.path / FOLDER, ignore_errors=True)  # of an attempt that was killed
    if calibration is not None:
        calibration.without(ids).write(draft.path / FOLDER, file_sha256(draft.path / _WEIGHTS))
    return [*files, *TRACE_FILES]


def _without(trace: Trace, ids: Ids) -> Trace:
    keep = ~np.isin(trace.ids, ids)
    columns = ("norms", *OPTIONAL_COLUMNS)
    kept = {name: values[:, keep] for name in columns if (values := getattr(trace, name)) is not None}
    return replace(trace, ids=trace.ids[keep], **kept)


def _ledger_rows(
    judged: Sequence[JudgedRequest], attempt: Attempt, trace: Trace, out: Path
) -> list[dict[str, Any]]:
    """One row per request; of several that were unlearned together, a last row for all of them."""
    facts = {
        "steps": attempt.unlearned.steps,
        "model_after": file_sha256(out / _WEIGHTS),
        "seconds": attempt.seconds or 0.0,
        "together": max(1, len(judged) - 1),
    }
    whole, *parts = (_ledger_row(request, attempt.options, trace) | facts for request in judged)
    return [*(row | {"part_of": reference_of(whole["salt"])} for row in parts), whole]


def _ledger_row(judged: JudgedRequest, options: ForgetOptions, trace: Trace) -> dict[str, Any]:
    plan, ids = judged.plan, judged.plan.request.ids
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "request": plan.request.forget_set.name,
        "person": plan.request.person,
        "list_sha256": plan.request.file_sha256,
        "size": len(ids),
        "ids": ids.tolist(),
        "salt": secrets.token_hex(16),
        **method_document(plan, options),
        "reached": judged.actual["reached"],
        "outcome": str(judged.outcome),
        "model_before": plan.model,
        "bound": bound_document(
            group_bound(anonymous_norms(trace, ids), trace), "group loss of this request"
        ),
        "cumulative": bound_document(plan.bound, "group loss of all removed examples"),
    }
