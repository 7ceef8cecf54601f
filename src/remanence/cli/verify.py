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
    user: str | None = None,
    json: Json = False,
) -> None:
    """Verify evidence: its signature, its digest, its page, and the files of the model.

    Fails with exit code 1 if a byte of the evidence, its page or the model has changed. Signed evidence needs
    --public-key: without it, a signature could be anybody's, and the exit code is 2. Evidence of a request that was not
    forgotten can be valid too: read the outcome, which is printed first.

    For example:

    `remanence verify run2/evidence.json --public-key key.pub`

    Parameters
    ----------
    evidence:
        An evidence.json made by `remanence forget`.
    run:
        The folder of the model; the folder of the evidence by default.
    public_key:
        Ed25519 public key (PEM or OpenSSH) that must have signed it. Get it from a source that you trust, not from the
        folder of the evidence.
    ids:
        The list of the request: a file that must have all its ids, and no others than those that were skipped.
    user:
        The person that the request must be for.
    """
    from remanence.errors import InputError, RemanenceError
    from remanence.forgetting.forget_set_files import listed_ids
    from remanence.requests import read_evidence, read_public_key, verify_evidence
    from remanence.requests.evidence import not_covered
    from remanence.requests.signing import fingerprint
    from remanence.storage import SEAL

    listed = None if ids is None else [text for _, text in listed_ids(ids, column=column)]
    key = None if public_key is None else read_public_key(public_key)
    checks = verify_evidence(evidence, run=run, public_key=key, ids=listed, person=user)
    failed = [check for check in checks if not check.holds]
    document = read_evidence(evidence)
    signer = document["signer"]
    unknown_signer = signer is not None and key is None
    # what a changed document says is worth nothing, and so is what anybody may have signed
    outcome = None if failed or unknown_signer else document["outcome"]
    folder = evidence.parent if run is None else run
    uncovered = not_covered(folder) if not failed and (folder / SEAL).exists() else []
    if json:
        console.print_json(
            {
                "holds": outcome is not None,
                "outcome": outcome,
                "signed": signer is not None,
                "not_covered": uncovered,
                "checks": [{"what": check.what, "holds": check.holds} for check in checks],
            }
        )
    else:
        if outcome is not None:
            console.out.print(f"outcome: {outcome}", markup=False)
        for check in checks:
            console.out.print(f"{'✓' if check.holds else '✗'} {check.what}", soft_wrap=True, markup=False)
        if uncovered:
            console.note(f"Files of {folder} that the evidence does not cover: {', '.join(uncovered)}.")
        if signer is None:
            console.note("The evidence is not signed: anyone who can write these files could have made it.")
    if failed:
        raise RemanenceError(
            f"{evidence} is not valid. Expected that {failed[0].what}; this is not the case."
        )
    if unknown_signer:
        raise InputError(
            f"{evidence} is signed with the key {fingerprint(signer['public_key'])}, which can be anybody's: give "
            "`public_key`, from a source that you trust."
        )
