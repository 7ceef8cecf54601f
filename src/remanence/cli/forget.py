"""`remanence forget`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Flag, IdColumn, Ids, Json, Paths, SigningKey

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
    ids: Ids,
    out: Path,
    column: IdColumn = "id",
    key: SigningKey = None,
    oracle: Flag = False,
    budget: int | None = None,
    asked_by: str = "",
    plain_ids: Flag = False,
    look_in: Paths = None,
    apart: Flag = False,
    seed: int = 0,
    progress: Path | None = None,
    json: Json = False,
) -> None:
    """Carry out a deletion request: unlearn the examples, audit the result, and write the evidence.

    Unlearns as `remanence plan` shows until the criterion holds, for at most --budget steps. OUT is an ordinary run
    without the examples. It contains a ledger of all requests so far, evidence.html and evidence.json. If it is
    interrupted, the same command continues.

    For example:

    `remanence forget run --ids request.csv --out run2 --key key.pem`

    Parameters
    ----------
    run:
        A calibrated run, or one that this command made.
    out:
        Folder of the new run.
    oracle:
        Also retrain a model without the examples, for the audit; it is kept in OUT/oracle.
    budget:
        Maximum number of unlearning steps; the calibration's by default.
    asked_by:
        The person or department behind the request; written into the evidence.
    plain_ids:
        Write the ids into the evidence; by default only their keyed hashes.
    look_in:
        Folders to search for remaining artifacts; by default those around RUN and OUT.
    apart:
        Begin from RUN even if another request has already; the two new models then differ.
    seed:
        Random seed of the unlearning.
    progress:
        Write the progress to this file, as one small JSON object, for another program to read.
    """
    from remanence.requests import ForgetOptions, read_private_key, read_request
    from remanence.requests import forget as carry_out
    from remanence.storage import SEAL
    from remanence.training import open_run

    opened = open_run(run)
    request = read_request(ids, opened, column=column)
    options = ForgetOptions(
        key=None if key is None else read_private_key(key),
        oracle=oracle,
        budget=budget,
        plain_ids=plain_ids,
        asked_by=asked_by,
        look_in=tuple(look_in or ()),
        apart=apart,
        seed=seed,
    )
    if (out / "unfinished.toml").exists() and not (out / SEAL).exists():
        console.note(f"{out} is unfinished; continuing.")
    with console.progress_bar(show=not json) as bar:
        unlearning = bar.add_task("Unlearning", total=None)
        retraining = bar.add_task("Retraining without the examples", total=None, visible=False)
        result = carry_out(
            opened,
            request,
            out,
            options,
            progress=_reporter(progress, "unlearning", lambda **state: bar.update(unlearning, **state)),
            retraining=_reporter(
                progress, "retraining", lambda **state: bar.update(retraining, visible=True, **state)
            ),
        )
    if json:
        console.print_json(_document(result, out))
    else:
        _print_result(result, out)


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
    names = ("actual", "plan", "audit", "bounds", "remaining_artifacts", "model", "digest")
    return {"run": str(out), "already": result.already} | {name: result.evidence[name] for name in names}


def _print_result(result: ForgetResult, out: Path) -> None:
    evidence = result.evidence
    if result.already:
        console.note(f"{out} was finished earlier; nothing was done.")
    rows = {row["metric"]: row for row in evidence["audit"]}
    figures = ", ".join(
        f"{name} {rows[name]['before']:.3f} → {rows[name]['after']:.3f}" for name in ("mia", "ua", "test")
    )
    console.out.print(
        f"{_outcome(evidence)} {figures}. The run is in {out}; read {out / 'evidence.html'}.",
        soft_wrap=True,
        markup=False,
    )
    change = rows["test"]["after"] - rows["test"]["before"]
    worst = evidence["plan"]["test_accuracy_change"]["low"]
    if change < worst:
        console.note(
            f"Test accuracy changed by {100 * change:+.1f} points, more than in nine of ten calibration runs "
            f"({100 * worst:+.1f}); check the model before you release it."
        )
    _print_remaining(evidence["remaining_artifacts"], out)


def _outcome(evidence: Mapping[str, Any]) -> str:
    actual, forecast = evidence["actual"], evidence["plan"]["forecast"]
    high = "?" if forecast["high"] is None else f"{forecast['high']:.0f}"
    expected = f"forecast {forecast['steps']:.0f}, interval {forecast['low']:.0f} to {high}"
    if actual["reached"]:
        return (
            f"Forgotten after {actual['steps']:.0f} steps, confirmed at {actual['stopped_at']} ({expected})."
        )
    return (
        f"NOT forgotten: the criterion does not hold after {actual['stopped_at']} steps ({expected}). "
        "Use a larger --budget, or retrain (`remanence train --without`)."
    )


def _print_remaining(artifacts: Sequence[Mapping[str, Any]], out: Path) -> None:
    if not artifacts:
        return
    console.out.print("Remaining artifacts:")
    for row in sorted(artifacts, key=lambda row: bool(row["purge_erases"]))[:_SHOWN]:
        console.out.print(f"  {row['path']}: {row['description']}", soft_wrap=True, markup=False)
    if len(artifacts) > _SHOWN:
        console.out.print(f"  and {len(artifacts) - _SHOWN} more, all listed in the evidence")
    if earlier := [row["path"] for row in artifacts if row["purge_erases"]]:
        folders = " ".join(earlier)
        command = f"`remanence purge {out} --erase {folders} --yes` erases the earlier models."
        console.out.print(command, soft_wrap=True, markup=False)
