"""`remanence purge`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App
from rich.filesize import decimal

from remanence.cli import console
from remanence.cli.options import Flag, Json, Paths, SigningKey

app = App(name="purge")


@app.default
def purge(
    run: Path,
    /,
    *,
    erase: Paths = None,
    look_in: Paths = None,
    key: SigningKey = None,
    copies: Flag = False,
    although_not_forgotten: Flag = False,
    yes: Flag = False,
    json: Json = False,
) -> None:
    """Erase the earlier models of a run, which still contain the removed examples.

    Lists all remaining artifacts with their sizes. The folders named with --erase must be earlier models of RUN; the
    list shows exactly which of their files --yes erases. This is recorded in the evidence of the run (signed with
    --key, if it was signed), which must be valid before anything is erased. Everything else that may contain the
    examples is listed and not erased. Refuses while a request of RUN is neither forgotten nor retrained. Links are
    never followed. Files are deleted, not overwritten: backups and the disk itself may keep them.

    For example:

    `remanence purge run2`

    `remanence purge run2 --erase run --yes --key key.pem`

    Parameters
    ----------
    run:
        A run made by `remanence forget`.
    erase:
        Folders of earlier models of RUN; each must prove by its seal that it is one.
    look_in:
        Folders to search; by default the folder around RUN.
    copies:
        Also erase identical copies of these folders that the search finds; by default they are only listed.
    although_not_forgotten:
        Erase the earlier models even if a request of RUN is neither forgotten nor retrained.
    yes:
        Erase the files; without it they are only listed.
    """
    from remanence.requests import list_remaining_artifacts, read_private_key
    from remanence.requests import purge as erase_models
    from remanence.training import open_run

    if yes:
        private_key = None if key is None else read_private_key(key)
        done = erase_models(
            run,
            erase or (),
            look_in or (),
            key=private_key,
            copies=copies,
            although_not_forgotten=although_not_forgotten,
        )
        artifacts, erased, sizes = [*done.erased, *done.left], set(done.erased), done.sizes
    else:
        listed = list_remaining_artifacts(open_run(run), look_in or (), erase or (), copies=copies)
        sizes = {artifact.path: artifact.size for artifact in listed}
        artifacts, erased = [artifact for artifact in listed if artifact.path.exists()], set()
    if json:
        rows = [
            artifact.document()
            | {
                "erased": artifact in erased,
                "bytes": sizes[artifact.path],
                "copy_of": None if artifact.copy_of is None else str(artifact.copy_of),
            }
            for artifact in artifacts
        ]
        console.print_json({"run": str(run), "remaining_artifacts": rows})
        return
    for artifact in artifacts:
        state = "erased" if artifact in erased else "would be erased" if artifact.erasable else "not erased"
        size = decimal(sizes[artifact.path])
        line = f"{state}: {artifact.path} ({size}): {artifact.description}"
        console.out.print(line, soft_wrap=True, markup=False)
    if doomed := [artifact for artifact in artifacts if artifact.erasable]:
        total = decimal(sum(sizes[artifact.path] for artifact in doomed))
        console.out.print(
            f"{'Erased' if yes else 'To be erased'}: {total} in {len(doomed)} files and folders."
        )
    if any(artifact.copy_of is not None for artifact in artifacts):
        console.out.print("Identical copies are listed, not erased; --copies erases them too.")
    if not artifacts:
        console.out.print("No remaining artifacts were found.")
    elif not yes and any(artifact.erasable for artifact in artifacts):
        console.out.print("Nothing was erased; add --yes to erase.")
    elif not erase:
        console.out.print("Nothing was erased; name the earlier models of this run with --erase.")
