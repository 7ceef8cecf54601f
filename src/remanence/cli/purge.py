"""`remanence purge`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Flag, Json, Paths, SigningKey

app = App(name="purge")


@app.default
def purge(
    run: Path,
    /,
    *,
    look_in: Paths = None,
    key: SigningKey = None,
    yes: Flag = False,
    json: Json = False,
) -> None:
    """Erase remaining artifacts: the earlier models of a run, which still contain the removed examples.

    Lists all remaining artifacts. With --yes, the earlier models and their files are erased, and this is recorded in
    the evidence of the run (signed with --key, if it was signed). Other models, studies and pages that may contain the
    examples are listed and not erased. Files are deleted, not overwritten: backups and the disk itself may keep them.

    For example:

    `remanence purge run2 --yes --key key.pem`

    Parameters
    ----------
    run:
        A run made by `remanence forget`.
    look_in:
        Folders to search; by default the parent folders of RUN and of its earlier models.
    yes:
        Erase the files; without it they are only listed.
    """
    from remanence.requests import list_remaining_artifacts, read_private_key
    from remanence.requests import purge as erase
    from remanence.training import open_run

    if yes:
        done = erase(run, look_in or (), key=None if key is None else read_private_key(key))
        artifacts, erased = [*done.erased, *done.left], set(done.erased)
    else:
        artifacts, erased = list_remaining_artifacts(open_run(run), look_in or ()), set()
    if json:
        rows = [artifact.document() | {"erased": artifact in erased} for artifact in artifacts]
        console.print_json({"run": str(run), "remaining_artifacts": rows})
        return
    for artifact in artifacts:
        state = "erased" if artifact in erased else "would be erased" if artifact.erasable else "not erased"
        console.out.print(f"{state}: {artifact.path}: {artifact.description}", soft_wrap=True, markup=False)
    if not artifacts:
        console.out.print("No remaining artifacts were found.")
    elif not yes and any(artifact.erasable for artifact in artifacts):
        console.out.print("Nothing was erased; add --yes to erase.")
