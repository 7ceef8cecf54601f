"""`remanence forget`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json import dumps
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from remanence.cli import console
from remanence.cli.exit_codes import ExitCode, exit_code_of
from remanence.cli.options import (
    Device,
    Flag,
    IdColumn,
    IdLists,
    IfRemoved,
    IfUnknown,
    Json,
    Paths,
    SigningKey,
    User,
)

if TYPE_CHECKING:
    from remanence.requests import ForgetResult

app = App(name="forget")
_SHOWN = 8
_PAUSE = 0.3


@app.default
def forget(
    run: Path,
    /,
    *,
    out: Path,
    ids: IdLists = None,
    user: User = None,
    column: IdColumn = "id",
    unknown: IfUnknown = "refuse",
    already_removed: IfRemoved = "refuse",
    key: SigningKey = None,
    oracle: Flag = False,
    budget: int | None = None,
    method: Literal["unlearn", "retrain"] = "unlearn",
    resume: Flag = False,
    model_key: Path | None = None,
    asked_by: str = "",
    plain_ids: Flag = False,
    look_in: Paths = None,
    apart: Flag = False,
    relearning: bool = True,
    keep_calibration: bool = True,
    seed: int = 0,
    progress: Path | None = None,
    device: Device = "auto",
    json: Json = False,
) -> ExitCode:
    """Carry out a deletion request: unlearn the examples, audit the result, and write the evidence.

    Unlearns as `remanence plan` shows until the criterion holds, for at most --budget steps. OUT is an ordinary run
    without the examples. It contains a ledger of all requests so far, evidence.html and evidence.json. If it is
    interrupted, the same command continues. The exit code is 3 if the examples are not forgotten, and 4 if the result
    cannot be judged, as always before `remanence calibrate`.

    With several --ids, the requests are unlearned together, and each has evidence of its own in OUT/evidence-1,
    OUT/evidence-2 and so on, in the order of the lists.

    For example:

    `remanence forget run --ids request.csv --out run2 --key key.pem`

    `remanence forget run --user ann --out run2`

    `remanence forget run --ids monday.csv --ids tuesday.csv --out run2`

    Parameters
    ----------
    run:
        A run with a trace, or one that this command made.
    out:
        Folder of the new run.
    oracle:
        Also retrain a model without the examples, for the audit; it is kept in OUT/oracle.
    budget:
        Maximum number of unlearning steps; the calibration's by default. If OUT holds this request and it was not
        forgotten, a larger number goes on with it.
    method:
        `unlearn` as the calibration does, or `retrain` a new model without the examples; both write the same evidence.
    resume:
        Go on with the request in OUT, also if it was not forgotten: for as many steps again, unless --budget is given.
    model_key:
        EC private key (PEM) that also signs the files of the model by OpenSSF Model Signing, into OUT/model.sig; needs
        the extra `model-signing`.
    asked_by:
        A case number or department, written into the evidence as it is; do not name the person.
    plain_ids:
        Write the ids into the evidence; by default only their keyed hashes.
    look_in:
        Folders to search for remaining artifacts; by default those around RUN and OUT.
    apart:
        Begin from RUN even if another request has already; the two new models then differ.
    relearning:
        Also fine-tune copies of the new model (and of the oracle), for the audit, to see whether the examples come
        back; the cost is printed first.
    keep_calibration:
        Keep the outputs of the reference models in OUT. These models were trained on the examples: `remanence calibrate
        OUT` trains them again without the examples. Without a calibration, later results cannot be judged.
    seed:
        Random seed of the unlearning and of the relearning test.
    progress:
        Write the progress to this file, as one small JSON object, for another program to read.
    """
    from remanence.requests import ForgetOptions, find_request, read_private_key
    from remanence.requests import forget as carry_out
    from remanence.storage import SEAL
    from remanence.training import open_run

    opened = open_run(run, device=device)
    paths: list[Path | None] = [*ids] if ids else [None]
    requests = [
        find_request(
            opened, ids=path, user=user, column=column, unknown=unknown, already_removed=already_removed
        )
        for path in paths
    ]
    for request in requests:
        console.note_skipped(request.skipped)
    options = ForgetOptions(
        key=None if key is None else read_private_key(key),
        oracle=oracle,
        budget=budget,
        plain_ids=plain_ids,
        model_key=model_key,
        asked_by=asked_by,
        look_in=tuple(look_in or ()),
        apart=apart,
        seed=seed,
        relearning=relearning,
        keep_calibration=keep_calibration,
        method=method,
        resume=resume,
    )
    if (out / "unfinished.toml").exists() and not (out / SEAL).exists():
        console.note(f"{out} is unfinished; continuing.")
    with console.progress_bar(show=not json) as bar:
        unlearning = bar.add_task("Unlearning", total=None)
        retraining = bar.add_task("Retraining without the examples", total=None, visible=False)
        result = carry_out(
            opened,
            requests,
            out,
            options,
            progress=_reporter(progress, "unlearning", lambda **state: bar.update(unlearning, **state)),
            retraining=_reporter(
                progress, "retraining", lambda **state: bar.update(retraining, visible=True, **state)
            ),
            note=console.note,
        )
    code = exit_code_of(result.outcome)
    if json:
        console.print_json(_document(result, out) | {"exit_code": code})
    else:
        lists = [word for path in ids or () for word in ("--ids", str(path))]
        source = ["--user", user] if user is not None else [*lists, "--column", column]
        skipped = any(request.skipped for request in requests)
        source += ["--unknown", unknown, "--already-removed", already_removed] if skipped else []
        signing = [] if key is None else ["--key", str(key)]
        again = ["remanence", "forget", str(run), *source, "--out", str(out), *signing]
        _print_result(result, out, code, again)
    return code


def _reporter(file: Path | None, phase: str, show: Callable[..., None]) -> Callable[[int, int], None]:
    """Show the progress, and write it to a file a few times per second."""
    from time import monotonic

    from remanence.storage import atomic

    last = -_PAUSE

    def report(done: int, total: int) -> None:
        nonlocal last
        show(completed=done, total=total)
        if file is not None and (monotonic() - last >= _PAUSE or done == total):
            last = monotonic()
            atomic.write_text(file, dumps({"phase": phase, "done": done, "total": total}) + "\n")

    return report


def _document(result: ForgetResult, out: Path) -> dict[str, Any]:
    from remanence.requests.evidence import evidence_folder

    names = ("outcome", "actual", "plan", "audit", "bounds", "model", "digest")
    remaining = [artifact.document() for artifact in result.remaining]
    facts = {"run": str(out), "already": result.already, "remaining_artifacts": remaining}
    parts = [
        {"evidence": str(out / evidence_folder(number)), "outcome": part["outcome"], "actual": part["actual"]}
        for number, part in enumerate(result.parts, start=1)
    ]
    return facts | {name: result.evidence[name] for name in names} | ({"requests": parts} if parts else {})


def _print_result(result: ForgetResult, out: Path, code: ExitCode, again: Sequence[str]) -> None:
    evidence = result.evidence
    console.out.print(_outcome(result, code), soft_wrap=True, markup=False)
    if result.already:
        console.note(f"{out} was finished earlier; nothing was done.")
    rows = {row["metric"]: row for row in evidence["audit"]}
    figures = ", ".join(
        f"{name} {rows[name]['before']:.3f} → {rows[name]['after']:.3f}"
        for name in ("mia_confidence", "ua", "test")
    )
    console.out.print(
        f"{figures}. The run is in {out}; read {out / 'evidence.html'}.", soft_wrap=True, markup=False
    )
    _print_parts(result, out)
    for line in _ways_on(result, again):
        console.out.print(line, soft_wrap=True, markup=False)
    change = rows["test"]["after"] - rows["test"]["before"]
    worst = (evidence["plan"]["test_accuracy_change"] or {}).get("low")
    if worst is not None and change < worst:
        console.note(
            f"Test accuracy changed by {100 * change:+.1f} points, more than in nine of ten calibration runs "
            f"({100 * worst:+.1f}); check the model before you release it."
        )
    _print_remaining(
        [artifact.document() for artifact in result.remaining], out, settled=result.outcome.is_final
    )


def _outcome(result: ForgetResult, code: ExitCode) -> str:
    """The outcome in one sentence, with the exit code if it is not 0."""
    from remanence.requests import Outcome

    actual, forecast = result.evidence["actual"], result.evidence["plan"]["forecast"]
    high = "?" if forecast["high"] is None else f"{forecast['high']:.0f}"
    expected = f"forecast {forecast['steps']:.0f}, interval {forecast['low']:.0f} to {high}"
    confirmed = f"after {actual['steps']:.0f} steps, confirmed at {actual['stopped_at']} ({expected})"
    verdict = actual["verdict"]["sentence"]
    beyond = _is_beyond(result.evidence["plan"])
    match result.outcome:
        case Outcome.FORGOTTEN:
            return f"Forgotten {confirmed}. {verdict}"
        case Outcome.RETRAINED:
            return f"Retrained without the examples, {actual['stopped_at']} steps."
        case Outcome.NOT_JUDGED:
            reason = (
                "Its target is an extrapolation, because no model that never saw such a set was available."
                if beyond
                else verdict
            )
            return f"CARRIED OUT, NOT JUDGED (exit code {code}): the criterion holds {confirmed}. {reason}"
        case Outcome.NOT_FORGOTTEN if actual["reached"]:
            reason = (
                "The model differs from the retrained one, which decides here, because no reference model left out "
                "such a set."
                if beyond
                else verdict
            )
            return f"NOT FORGOTTEN (exit code {code}): the criterion holds {confirmed}. {reason}"
    return (
        f"NOT FORGOTTEN (exit code {code}): the criterion does not hold after {actual['stopped_at']} steps "
        f"({expected})."
    )


def _is_beyond(plan: Mapping[str, Any]) -> bool:
    """Whether the expectation for the set is an extrapolation."""
    expected = plan["expected_if_never_trained_on"]
    return expected is not None and bool(expected["beyond"])


def _print_parts(result: ForgetResult, out: Path) -> None:
    """Of several requests that were unlearned together, the outcome of each."""
    from remanence.requests.evidence import evidence_folder

    for number, part in enumerate(result.parts, start=1):
        page = out / evidence_folder(number) / "evidence.html"
        line = f"  request {number}: {part['request']['size']} ids, {part['outcome']}; read {page}"
        console.out.print(line, soft_wrap=True, markup=False)


def _ways_on(result: ForgetResult, again: Sequence[str]) -> list[str]:
    """The commands that go on with a request that is not settled."""
    from remanence.requests import Outcome

    if result.outcome.is_final:
        return []
    lines = [f"To retrain without the examples instead: {join([*again, '--method', 'retrain'])}"]
    beyond = _is_beyond(result.evidence["plan"])
    if result.outcome is Outcome.NOT_FORGOTTEN and not (beyond and result.evidence["actual"]["reached"]):
        lines.insert(0, f"To go on for more steps: {join([*again, '--resume'])}")
    return lines


def _print_remaining(artifacts: Sequence[Mapping[str, Any]], out: Path, *, settled: bool) -> None:
    if not artifacts:
        return
    console.out.print("Remaining artifacts:")
    for row in sorted(artifacts, key=lambda row: bool(row["purge_erases"]))[:_SHOWN]:
        console.out.print(f"  {row['path']}: {row['description']}", soft_wrap=True, markup=False)
    if len(artifacts) > _SHOWN:
        console.out.print(f"  and {len(artifacts) - _SHOWN} more, all listed by remanence purge {out}")
    earlier = [row["path"] for row in artifacts if row["purge_erases"]]
    if earlier and settled:
        folders = " ".join(earlier)
        command = f"`remanence purge {out} --erase {folders} --yes` erases the earlier models."
        console.out.print(command, soft_wrap=True, markup=False)
