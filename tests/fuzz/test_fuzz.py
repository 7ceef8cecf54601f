"""Fuzzed command lines, files, byte flips and forged evidence: no traceback, no hang, no accepted forgery.

Everything is seeded. `make test` checks some cases of each kind; `make fuzz` as many as there is time for.
"""

from __future__ import annotations

import base64
import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cyclopts import App
from hypothesis import strategies as st

from remanence.cli.main import app
from remanence.requests.attestation import parse, serialize, sign
from remanence.storage import SEAL, open_folder, seal_in_place, to_toml

Call = Callable[..., Any]
_NOT_FUZZED = ("demo", "doctor", "dashboard")
"""Commands that start processes or servers whatever their options are."""
_LONG = (
    "train",
    "tune",
    "unlearn",
    "calibrate",
    "forget",
    "certify",
    "import",
    "audit",
    "barrier",
    "study",
    "bound",
)
"""Commands that may work for long with valid options; they are interrupted."""
_PATIENCE = 4.0

_RAW = {
    "@big": "9" * 5000,
    "@nan": "NaN",
    "@surrogate": '"\\ud800"',
    "@huge": "1" + "0" * 40,
    "@inf": "1e999",
}
"""Values that only exist as text of a file."""
_HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, -(2**63) - 1, 1e308, "", "x", "x\0y", "../../etc", "a" * 5000, "subprocess:getoutput",
    [], {}, [[]], [None], {"": 0}, *_RAW,
)  # fmt: skip


def _restore(workshop: Path, pristine: Path) -> None:
    """Undo what commands did; the folder itself stays, as it is the current one."""
    for entry in workshop.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    shutil.copytree(pristine, workshop, dirs_exist_ok=True)


# ---------------------------------------------------------------- command lines


def _commands(parent: App, names: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], list[Any]]]:
    """Every command with its arguments, as cyclopts knows them."""
    found = []
    for name in parent:
        command = parent[name]
        if name.startswith("-") or name in _NOT_FUZZED:
            continue
        if command.default_command is not None:
            arguments = [argument for argument in command.assemble_argument_collection() if argument.show]
            found.append(((*names, name), arguments))
        found += _commands(command, (*names, name))
    return found


_PATHS = (
    "run", "new", "request.csv", "set.json", "key.pem", "key.pub", "scores.csv", "pack.npz", "problem.npz", "states",
    "choice.json", "study.toml", "new/evidence.json", "new/calibration", "missing", "", ".", "a" * 300, "b/" * 3000,
    "x\0y", "\udcff", "-", "~nobody/x", "[/red]", "\x1b[31m", "new/config.toml", "run/weights.safetensors",
)  # fmt: skip
_NUMBERS = ("0", "1", "-1", "2", "1e400", "nan", "-inf", "9" * 5000, "1" + "0" * 30, "0.5", "1_0", "x", "")
_WORDS = (
    "id",
    "digits",
    "mlp",
    "",
    "x",
    "a=b",
    "hidden=(",
    "=",
    "label",
    "finetune",
    "mia_confidence",
    "\udcff",
    "💥",
    "a\nb",
    "[red]",
)


def _values(hint: Any) -> tuple[str, ...]:
    text = str(hint)
    if get_origin(hint) is Literal:
        return (*map(str, get_args(hint)), "x")
    if "bool" in text:
        return ("",)
    if "Path" in text:
        return _PATHS
    return _NUMBERS if "int" in text or "float" in text else (*_WORDS, *_PATHS[:6])


@st.composite
def _command_lines(draw: st.DrawFn) -> list[str]:
    names, arguments = draw(st.sampled_from(_commands(app)))
    words = list(names)
    for argument in arguments:
        positional = not argument.name.startswith("-")
        if not draw(st.integers(0, 9)) < (9 if argument.required or positional else 2):
            continue
        value = draw(st.sampled_from(_values(argument.hint)))
        words += (
            [value] if positional else [draw(st.sampled_from(argument.names))] + ([value] if value else [])
        )
    if draw(st.integers(0, 19)) == 0:
        words.append(draw(st.sampled_from(("--unknown", "--help", "--json=x", "extra"))))
    return words


@pytest.mark.filterwarnings("ignore")
def test_command_lines(workshop: Path, check_refusal: Call, fuzz: Call) -> None:
    pristine = shutil.copytree(workshop, workshop.parent / "pristine")

    def check(words: list[str]) -> None:
        limit = _PATIENCE if words[0] in _LONG else 20.0
        outcome = check_refusal(words, limit=limit)
        assert not outcome.hung or words[0] in _LONG, words
        if outcome.code != 2:
            _restore(workshop, pristine)

    fuzz("command lines", _command_lines(), check, batches=8)


# ---------------------------------------------------------------- files

_READERS: dict[str, tuple[str, ...]] = {
    "new/config.toml": ("plan new --ids set.json", "score new", "purge new", "audit new --forget set.json"),
    "new/trace.json": ("score new", "plan new --ids set.json"),
    "new/trace.safetensors": ("score new", "plan new --ids set.json"),
    "new/weights.safetensors": ("audit new --forget set.json --metrics ua", "diff run new"),
    "new/measurements.jsonl": ("score new", "verify new/evidence.json"),
    "new/ledger-ids.json": ("plan new --ids set.json", "score new", "purge new"),
    "new/ledger.jsonl": ("plan new --ids set.json", "purge new", "verify new/evidence.json"),
    "new/removed.safetensors": ("plan new --ids set.json",),
    "new/remanence.json": ("score new", "verify new/evidence.json", "purge new", "diff run new"),
    "new/calibration/config.toml": ("plan new --ids set.json",),
    "new/calibration/facts.json": ("plan new --ids set.json",),
    "new/calibration/trials.jsonl": ("plan new --ids set.json",),
    "new/calibration/reference.safetensors": ("plan new --ids set.json",),
    "new/calibration/fold_targets.json": ("plan new --ids set.json",),
    "new/calibration/fold_targets.safetensors": ("plan new --ids set.json",),
    "new/evidence.json": ("verify new/evidence.json", "purge new"),
    "run/.request.json": ("plan run --ids set.json",),
    "run/checkpoints/step-000000084/weights.safetensors": (
        "import --checkpoints run --data digits --model mlp --out t",
    ),
    "set.json": ("plan new --ids set.json", "audit new --forget set.json --metrics ua"),
    "request.csv": ("plan new --ids request.csv",),
    "scores.csv": ("select scores.csv --how hardest --size 5 --out s.json --force", "purge new"),
    "choice.json": ("unlearn new --forget set.json --tuned choice.json --steps 1 --out u",),
    "pack.npz": ("data check pack.npz", "train --data pack.npz --model mlp --epochs 1 --record 0 --out r"),
    "problem.npz": ("certify --data problem.npz --steps 2 --runs 2 --attack-models 2",),
    "states/model-1.pt": ("import --checkpoints states --data digits --model logistic --out t",),
    "study.toml": ("study status study.toml --store store",),
    "key.pem": ("purge new --yes --erase run --key key.pem",),
    "key.pub": ("verify new/evidence.json --public-key key.pub",),
}  # fmt: skip


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(place for key, entry in list(inside)[:8] for place in _places(entry, (*here, key)))]


def _replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _replaced(value[place[0]], place[1:], new)
    return copy


def _without(value: Any, place: tuple[Any, ...]) -> Any:
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = _without(value[place[0]], place[1:])
    return copy


def _confused(draw: st.DrawFn, value: Any) -> Any:
    """A document with a value of another type, a missing one, or an unknown one."""
    place = draw(st.sampled_from(_places(value)))
    how = draw(st.sampled_from(("replace", "replace", "remove", "add")))
    if how == "remove" and place:
        return _without(value, place)
    new = draw(st.sampled_from(_HOSTILE))
    return (
        value | {"unknown": new} if how == "add" and isinstance(value, dict) else _replaced(value, place, new)
    )


def _raw(text: str) -> bytes:
    for name, token in _RAW.items():
        text = text.replace(json.dumps(name), token)
    return text.encode()


def _confused_file(draw: st.DrawFn, path: Path, content: bytes) -> bytes | None:
    if path.suffix == ".json":
        return _raw(json.dumps(_confused(draw, json.loads(content))))
    if path.suffix == ".jsonl":
        rows = content.decode().splitlines()
        rows[0] = _raw(json.dumps(_confused(draw, json.loads(rows[0])))).decode()
        return "\n".join(rows).encode() + b"\n"
    if path.suffix == ".toml":
        confused = _confused(draw, tomllib.loads(content.decode()))
        try:
            return _raw(to_toml(confused))
        except (TypeError, AttributeError):  # TOML has no null, and a file is a table
            return b"x = 1"
    return None


def _mutated(draw: st.DrawFn, path: Path, content: bytes) -> bytes:
    how = draw(st.sampled_from(("confuse", "confuse", "confuse", "flip", "cut", "insert", "empty")))
    if how == "confuse" and (confused := _confused_file(draw, path, content)) is not None:
        return confused
    at = draw(st.integers(0, max(len(content) - 1, 0)))
    if how == "cut":
        return content[:at]
    if how == "insert":
        return content[:at] + draw(st.binary(max_size=40)) + content[at:]
    if how == "empty":
        return draw(st.sampled_from((b"", b"\0", b"\xff\xfe", b"[" * 5000, b"{}", b"[]", b"null", b"\n")))
    early = min(at, draw(st.sampled_from((len(content), 200))))  # headers break more than data
    return content[:early] + bytes([content[early] ^ draw(st.integers(1, 255))]) + content[early + 1 :]


def _reseal(path: Path) -> None:
    """Seal the folder of a file again, as anybody can."""
    folder = path.parent
    seal = folder / SEAL
    if path.name == SEAL or not seal.exists():
        return
    document = json.loads(seal.read_text())
    if path.name in document["files"]:
        seal_in_place(folder, document["remanence"], document["files"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _READERS)
def test_files(name: str, workshop: Path, check_refusal: Call, fuzz: Call) -> None:
    path = workshop / name
    pristine, content = shutil.copytree(workshop, workshop.parent / "pristine"), path.read_bytes()

    @st.composite
    def cases(draw: st.DrawFn) -> tuple[bytes, str]:
        return _mutated(draw, path, content), draw(st.sampled_from(_READERS[name]))

    def check(case: tuple[bytes, str]) -> None:
        changed, command = case
        path.write_bytes(changed)
        _reseal(path)
        outcome = check_refusal(command.split())
        assert not outcome.hung, (name, command, changed[:200])
        if outcome.code == 2:
            path.write_bytes(content)
            _reseal(path)
        else:
            _restore(workshop, pristine)

    fuzz(f"file {path.name}", cases(), check)


# ---------------------------------------------------------------- byte flips and forgeries


@pytest.mark.filterwarnings("ignore")
def test_byte_flips_are_detected(workshop: Path, check_refusal: Call, fuzz: Call) -> None:
    """In every file of a run, its calibration and its evidence."""
    verify = ["verify", "new/evidence.json", "--public-key", "key.pub"]
    assert check_refusal(verify).code == 0
    files = sorted(
        path for path in (workshop / "new").rglob("*") if path.is_file() and not path.name.startswith(".")
    )
    assert {path.name for path in files} >= {
        "config.toml", "evidence.html", "evidence.json", "facts.json", "ledger-ids.json", "ledger.jsonl",
        "measurements.jsonl", "reference.safetensors", "remanence.json", "removed.safetensors", "trace.json",
        "trace.safetensors", "trials.jsonl", "weights.safetensors",
    }  # fmt: skip

    @st.composite
    def cases(draw: st.DrawFn) -> tuple[Path, int, int]:
        path = draw(st.sampled_from(files))
        return path, draw(st.integers(0, path.stat().st_size - 1)), draw(st.integers(1, 255))

    def check(case: tuple[Path, int, int]) -> None:
        path, at, mask = case
        content = path.read_bytes()
        path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
        outcome = check_refusal(verify)
        path.write_bytes(content)
        assert outcome.code in (1, 2), (path, at, mask, outcome.output)

    fuzz("byte flips", cases(), check, batches=34)


def _forged(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Evidence that claims something else."""
    body = {
        key: value
        for key, value in document.items()
        if key not in ("digest", "signature", "signer", "page_sha256")
    }
    place = draw(st.sampled_from([place for place in _places(body) if place]))
    value = draw(st.sampled_from([entry for entry in _HOSTILE if entry not in (*_RAW, 1e308)]))
    return body | {"unknown": value} if draw(st.booleans()) else _replaced(body, place, value)


def _encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def _written(
    how: str, document: dict[str, Any], forged: dict[str, Any], stranger: Ed25519PrivateKey
) -> bytes:
    if how == "edit":
        return serialize(document | forged)
    if how == "digest":
        kept = {name: document[name] for name in ("signer", "signature")}
        return serialize(sign(document | forged, None) | kept)
    if how == "renamed":  # signed by a stranger in the name of the signer
        return serialize(sign(document | forged, stranger) | {"signer": document["signer"]})
    return serialize(sign(document | forged, stranger if how == "re-sign" else None))


@pytest.mark.filterwarnings("ignore")
def test_forged_evidence_is_refused(workshop: Path, check_refusal: Call, fuzz: Call) -> None:
    evidence, page = workshop / "new" / "evidence.json", workshop / "new" / "evidence.html"
    content, shown = evidence.read_bytes(), page.read_bytes()
    document, stranger = parse(content, evidence), Ed25519PrivateKey.generate()
    envelope = json.loads(content)

    @st.composite
    def cases(draw: st.DrawFn) -> tuple[bytes, bytes]:
        how = draw(
            st.sampled_from(
                ("edit", "digest", "re-sign", "renamed", "unsigned", "signature", "page", "layout")
            )
        )
        forged = _forged(draw, document)
        if how == "page":
            return content, shown.replace(b"<body", b"<body ", 1) + draw(st.binary(max_size=4))
        if how == "layout":
            text = draw(
                st.sampled_from(
                    (
                        json.dumps(envelope),
                        json.dumps(document),
                        json.dumps(json.loads(serialize(sign(document, None)))),
                        content.decode() + " ",
                        content.decode().upper(),
                    )
                )
            )
            return text.encode(), shown
        if how == "signature":
            field = draw(st.sampled_from(("sig", "keyid", "extra")))
            (signature,) = envelope["signatures"]
            text = signature.get(field, "x")
            new = draw(st.sampled_from((text.upper() + " ", f" {text}", text[:-1], "0" * len(text))))
            return json.dumps(envelope | {"signatures": [signature | {field: new}]}).encode(), shown
        try:
            return _written(how, document, forged, stranger), shown
        except (AttributeError, KeyError, TypeError, ValueError):  # no Statement can say this
            return json.dumps(
                envelope | {"payload": _encoded({"predicate": document | forged})}
            ).encode(), shown

    def check(case: tuple[bytes, bytes]) -> None:
        changed, changed_page = case
        if (changed, changed_page) == (content, shown):
            return
        evidence.write_bytes(changed)
        page.write_bytes(changed_page)
        _reseal(evidence)
        outcome = check_refusal(["verify", "new/evidence.json", "--public-key", "key.pub"])
        assert outcome.code in (1, 2), (changed[:2000], outcome.output)
        outcome = check_refusal(
            ["purge", "new", "--erase", "run", "--yes", "--key", "key.pem", "--although-not-forgotten"]
        )
        assert outcome.code in (1, 2), (changed[:2000], outcome.output)
        assert (workshop / "run" / "weights.safetensors").exists()
        assert evidence.read_bytes() == changed

    fuzz("forged evidence", cases(), check, batches=5)
    evidence.write_bytes(content)
    page.write_bytes(shown)
    seal_in_place(workshop / "new", "training", open_folder(workshop / "new").files())
    assert check_refusal(["verify", "new/evidence.json", "--public-key", "key.pub"]).code == 0
