"""Earlier attempts at a request in the same folder: whether to go on with one, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remanence.errors import RunFolderError
from remanence.requests.continuation import continuation
from remanence.requests.criterion import Criterion
from remanence.requests.evidence import FILE, evidence_folder, read_evidence
from remanence.requests.forget_result import ForgetResult
from remanence.requests.outcome import Outcome
from remanence.requests.plan import Plan
from remanence.requests.request import ForgetOptions, Request, model_hash
from remanence.requests.request_ledger import is_batch, read_ledger
from remanence.storage.parsing import parse_toml, read_file
from remanence.storage.unfinished import UNFINISHED
from remanence.training import Run, open_run

_LATER = 4
"""After a verdict that did not confirm a stop, unlearning goes on for this part of the budget or more: a verdict after
every few steps would confirm by luck."""


def earlier_result(run: Run, requests: Sequence[Request], out: Path) -> ForgetResult:
    """The result of an earlier call for the same requests; any other run in `out` is refused."""
    made = open_run(out, task=run.given_task, device=run.settings.device)
    rows = read_ledger(made)
    rows = rows[-rows[-1].get("together", 1) - 1 : -1] if rows and is_batch(rows[-1]) else rows[-1:]
    before = {row["model_before"] for row in rows}
    done = sorted(sorted(map(str, row["ids"])) for row in rows)
    if before != {model_hash(run)} or done != sorted(
        sorted(map(str, request.ids.tolist())) for request in requests
    ):
        raise RunFolderError(f"{out} holds a finished run; choose another `out`. Nothing was changed.")
    numbers = range(1, len(rows) + 1) if len(rows) > 1 else ()
    parts = tuple(read_evidence(out / evidence_folder(number) / FILE) for number in numbers)
    return ForgetResult(made, read_evidence(out / FILE), already=True, parts=parts)


def goes_on(earlier: ForgetResult, options: ForgetOptions) -> bool:
    """Whether these options go on with a request that was carried out before."""
    longer = (options.budget or 0) > earlier.evidence["actual"]["stopped_at"]
    if options.method == "retrain":
        goes_on = not earlier.outcome.is_final
    else:
        goes_on = earlier.outcome is Outcome.NOT_FORGOTTEN and (
            longer or (options.resume and not options.budget)
        )
    out = earlier.run.folder.path
    if goes_on and (next_run := continuation(out)) is not None:
        raise RunFolderError(
            f"{out} is continued in {next_run.folder}, so it can no longer be changed; begin from that run. "
            "Nothing was changed."
        )
    return goes_on


def budget_of_attempt(plan: Plan, out: Path, options: ForgetOptions, earlier: ForgetResult | None) -> int:
    """The maximum number of steps, counted from the beginning of the request."""
    if options.budget is not None:
        return options.budget
    if not options.resume:
        return plan.budget
    if earlier is not None:
        return int(earlier.evidence["actual"]["stopped_at"]) + plan.budget
    return begun_budget(out) or plan.budget


def begun_budget(out: Path) -> int | None:
    """The number of steps that an unfinished request in this folder was begun with."""
    path = out / UNFINISHED
    if not path.exists():
        return None
    steps = parse_toml(read_file(path), path).get("unlearning", {}).get("steps")
    return steps if type(steps) is int else None


def criterion_of_attempt(plan: Plan, out: Path) -> Criterion:
    """The criterion; if a verdict did not confirm an earlier stop, it must hold again, much later."""
    actual = _earlier_actual(out)
    if not actual.get("reached"):
        return plan.criterion
    later = max(2 * int(actual["stopped_at"]), plan.budget // _LATER)
    return replace(plan.criterion, not_before=later)


def number_of_looks(out: Path) -> int:
    """The number of verdicts on this request, with the one that comes: those of stops that were not confirmed."""
    actual = _earlier_actual(out)
    return 1 + (int(actual["verdict"]["looks"]) if actual.get("reached") else 0)


def _earlier_actual(out: Path) -> Mapping[str, Any]:
    """What an attempt in this folder took that was not forgotten."""
    if not (out / FILE).exists():
        return {}
    earlier = read_evidence(out / FILE)
    actual: Mapping[str, Any] = earlier["actual"] if earlier["outcome"] == Outcome.NOT_FORGOTTEN else {}
    return actual


def superseded_digest(out: Path, budget: int) -> str | None:
    """The digest of the evidence of an earlier attempt that was not forgotten, with another budget."""
    if not (out / FILE).exists():
        return None
    earlier = read_evidence(out / FILE)
    again = Outcome(earlier["outcome"]).is_final or earlier["actual"].get("budget") == budget
    return None if again else str(earlier["digest"])
