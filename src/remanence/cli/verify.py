"""`remanence verify`."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import IdColumn, Json

app = App(name="verify")


@app.default
def verify(
    evidence: Path,
    /,
    *,
    run: Path | None = None,
    public_key: Path | None = None,
    ids: Path | None = None,
    column: IdColumn = "id",
    json: Json = False,
) -> None:
    """Verify evidence: its signature, its digest, and the files of the model.

    Fails with exit code 1 if a byte of the evidence or of the model has changed.

    For example:

    `remanence verify run2/evidence.json --public-key key.pub`

    Parameters
    ----------
    evidence:
        An evidence.json made by `remanence forget`.
    run:
        The folder of the model; the folder of the evidence by default.
    public_key:
        Ed25519 public key (PEM or OpenSSH) that must have signed it.
    ids:
        A file with ids that must be exactly those of the request.
    """
    from remanence.errors import RemanenceError
    from remanence.forgetting import ids_from_file
    from remanence.requests import read_evidence, read_public_key, verify_evidence
    from remanence.requests.evidence import not_covered
    from remanence.requests.signing import fingerprint
    from remanence.storage import SEAL
    from remanence.training import open_run

    expected_ids = None
    if ids is not None:
        known = open_run(evidence.parent if run is None else run).clean[0].ids
        expected_ids = ids_from_file(ids, known, column=column).ids.tolist()
    key = None if public_key is None else read_public_key(public_key)
    checks = verify_evidence(evidence, run=run, public_key=key, ids=expected_ids)
    failed = [check for check in checks if not check.holds]
    signature = read_evidence(evidence)["signature"]
    folder = evidence.parent if run is None else run
    uncovered = not_covered(folder) if not failed and (folder / SEAL).exists() else []
    if json:
        console.print_json(
            {
                "holds": not failed,
                "signed": signature is not None,
                "not_covered": uncovered,
                "checks": [{"what": check.what, "holds": check.holds} for check in checks],
            }
        )
    else:
        for check in checks:
            console.out.print(f"{'✓' if check.holds else '✗'} {check.what}", soft_wrap=True, markup=False)
        if uncovered:
            console.note(f"Files of {folder} that the evidence does not cover: {', '.join(uncovered)}.")
        if signature is None:
            console.note("The evidence is not signed: anyone who can write these files could have made it.")
        elif key is None and not failed:
            console.note(
                f"Signed with the key {fingerprint(signature['public_key'])}; --public-key verifies whose key it is."
            )
    if failed:
        raise RemanenceError(
            f"{evidence} is not valid. Expected that {failed[0].what}; this is not the case."
        )
