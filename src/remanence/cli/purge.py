"""`remanence purge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="purge")
Flag = Annotated[bool, Parameter(negative="")]
Several = Parameter(consume_multiple=True, negative="")


@app.default
def purge(
    run: Path,
    /,
    *,
    look_in: Annotated[list[Path] | None, Several] = None,
    key: Path | None = None,
    yes: Flag = False,
    json: Flag = False,
) -> None:
    """Erase what still remembers the examples that left a run: the models before it, with all that is theirs.

    Lists them; erases only with --yes, and then records it in the run's evidence (signed with --key, if it was). Other
    models, studies and pages that may hold the examples are listed and left to you. Files are deleted, not overwritten:
    backups and the disk itself may keep them.

    For example:

    `remanence purge run2 --yes --key key.pem`

    Parameters
    ----------
    run:
        A run made by `remanence forget`.
    look_in:
        Folders to search; by default the one that RUN lies in, and those that the models before it lie in.
    key:
        The key that signed the evidence.
    yes:
        Really erase.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.requests import purge as erase
    from remanence.requests import read_private_key, survey
    from remanence.training import open_run

    if yes:
        done = erase(run, look_in or (), key=None if key is None else read_private_key(key))
        found, gone = [*done.erased, *done.left], set(done.erased)
    else:
        found, gone = survey(open_run(run), look_in or ()), set()
    if json:
        rows = [
            {"path": str(each.path), "what": each.what, "ours": each.ours, "erased": each in gone}
            for each in found
        ]
        console.print_json({"run": str(run), "remains": rows})
        return
    for each in found:
        word = "erased" if each in gone else "would be erased" if each.ours else "left to you"
        console.out.print(f"{word}: {each.path}: {each.what}", soft_wrap=True, markup=False)
    if not found:
        console.out.print("Nothing was found that still remembers.")
    elif not yes and any(each.ours for each in found):
        console.out.print("Nothing was erased; add --yes to do it.")
