"""`remanence forget`."""

from __future__ import annotations

from collections.abc import Callable
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console

if TYPE_CHECKING:
    from remanence.requests import Outcome

app = App(name="forget")
Flag = Annotated[bool, Parameter(negative="")]
Several = Parameter(consume_multiple=True, negative="")
_SHOWN = 8
_PAUSE = 0.3


@app.default
def forget(
    run: Path,
    /,
    *,
    ids: Path,
    out: Path,
    column: str = "id",
    key: Path | None = None,
    oracle: Flag = False,
    budget: int | None = None,
    asked_by: str = "",
    plain_ids: Flag = False,
    look_in: Annotated[list[Path] | None, Several] = None,
    apart: Flag = False,
    seed: int = 0,
    progress: Path | None = None,
    json: Flag = False,
) -> None:
    """Carry out a deletion request: unlearn until it is done, and show it.

    Unlearns as `remanence plan` says, watches what can be measured without an oracle, stops when the criterion holds,
    and goes on up to a budget when it does not. NEW is an ordinary run without the examples, with a ledger of all
    requests so far and evidence.html and evidence.json. Killed at any moment, the same command goes on.

    For example:

    `remanence forget run --ids request.csv --out run2 --key key.pem`

    Parameters
    ----------
    run:
        A calibrated run, or one that this command made.
    ids:
        Who wants to be forgotten: .csv, .parquet or .json, a forget set, or text with one id a line.
    out:
        The new run's folder.
    column:
        Column of the ids.
    key:
        Ed25519 private key (PEM or OpenSSH) that signs the evidence.
    oracle:
        Retrain a model without the examples too, for the audit; it stays in NEW/oracle.
    budget:
        Steps after which to give up; the calibration's by default.
    asked_by:
        Who asked; written into the evidence.
    plain_ids:
        Write the ids into the evidence; by default only their keyed hashes.
    look_in:
        Where to look for what still remembers; around RUN and NEW by default.
    apart:
        Begin from RUN though another request has already; the two models then go separate ways.
    seed:
        Of the unlearning.
    progress:
        Write here how far it is, as one small JSON object, for a program that watches.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.requests import Orders, read_private_key, read_request
    from remanence.requests import forget as carry_out
    from remanence.storage import SEAL
    from remanence.training import open_run

    opened = open_run(run)
    request = read_request(ids, opened, column=column)
    orders = Orders(
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
        console.note(f"{out} was begun and not finished; going on.")
    with console.progress_bar(show=not json) as bar:
        task = bar.add_task("Forgetting", total=None)
        anew = bar.add_task("Retraining without them", total=None, visible=False)
        outcome = carry_out(
            opened,
            request,
            out,
            orders,
            progress=_told(progress, "unlearning", lambda **far: bar.update(task, **far)),
            retraining=_told(progress, "retraining", lambda **far: bar.update(anew, visible=True, **far)),
        )
    if json:
        console.print_json(_document(outcome, out))
    else:
        _tell(outcome, out)


def _told(file: Path | None, phase: str, show: Callable[..., None]) -> Callable[[int, int], None]:
    """Show how far it is, and note it in a file a few times a second at most."""
    from time import monotonic

    from remanence.storage import atomic

    last = -_PAUSE

    def tell(done: int, total: int) -> None:
        nonlocal last
        show(completed=done, total=total)
        if file is not None and (monotonic() - last >= _PAUSE or done == total):
            last = monotonic()
            atomic.write_text(file, dumps({"phase": phase, "done": done, "total": total}) + "\n")

    return tell


def _document(outcome: Outcome, out: Path) -> dict[str, Any]:
    told = outcome.evidence
    return {"run": str(out), "already": outcome.already} | {
        name: told[name] for name in ("actual", "plan", "audit", "bounds", "remains", "model", "digest")
    }


def _tell(outcome: Outcome, out: Path) -> None:
    told = outcome.evidence
    actual, forecast = told["actual"], told["plan"]["forecast"]
    if outcome.already:
        console.note(f"{out} had been finished already; nothing was done.")
    high = "?" if forecast["high"] is None else f"{forecast['high']:.0f}"
    foretold = f"forecast {forecast['steps']:.0f}, interval {forecast['low']:.0f} to {high}"
    if actual["reached"]:
        first = (
            f"Forgotten after {actual['steps']:.0f} steps, confirmed at {actual['stopped_at']} ({foretold}). "
        )
    else:
        first = (
            f"NOT forgotten: the criterion does not hold after {actual['stopped_at']} steps ({foretold}). "
            "Give it a larger --budget, or retrain (`remanence train --without`). "
        )
    rows = {row["metric"]: row for row in told["audit"]}
    figures = ", ".join(
        f"{name} {rows[name]['before']:.3f} → {rows[name]['after']:.3f}" for name in ("mia", "ua", "test")
    )
    console.out.print(
        f"{first}{figures}. The run is in {out}; read {out / 'evidence.html'}.", soft_wrap=True, markup=False
    )
    change, worst = (
        rows["test"]["after"] - rows["test"]["before"],
        told["plan"]["test_accuracy_change"]["low"],
    )
    if change < worst:
        console.note(
            f"Test accuracy changed by {100 * change:+.1f} points, beyond what nine in ten calibration runs saw "
            f"({100 * worst:+.1f}); look at the model before you release it."
        )
    ours = [row for row in told["remains"] if row["purge_erases"]]
    others = [row for row in told["remains"] if not row["purge_erases"]]
    if not told["remains"]:
        return
    console.out.print("Still remembering:")
    for row in [*others, *ours][:_SHOWN]:
        console.out.print(f"  {row['path']}: {row['what']}", soft_wrap=True, markup=False)
    if len(told["remains"]) > _SHOWN:
        console.out.print(f"  and {len(told['remains']) - _SHOWN} more, all in the evidence")
    if ours:
        console.out.print(
            f"`remanence purge {out} --yes` erases the {len(ours)} of the models before.", markup=False
        )
