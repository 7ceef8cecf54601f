"""Forget sets on disk: one small JSON file each; ids and persons from people's own files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from remanence._version import __version__
from remanence.data import Examples
from remanence.data.columns import as_id_array, read_columns, read_json, read_text
from remanence.errors import DataError, InputError
from remanence.storage import atomic
from remanence.training import Run
from remanence.types import ForgetSet, Ids

_KIND = "forget set"
_FORMAT = 1


def write_forget_sets(
    path: Path, sets: Sequence[ForgetSet], *, data: str | None = None, overwrite: bool = False
) -> list[Path]:
    """Write each forget set to a file of its own and return the files.

    One set goes to `path`; of several, each gets its name into the file's (band.json → band-median.json).
    All files are looked at before the first is written. `data` is the digest of the data they were chosen from.
    """
    if path.suffix.lower() != ".json":
        raise InputError(f"{path} must end in .json.")
    marks = [f"-{each.name.replace(' ', '-')}" if len(sets) > 1 else "" for each in sets]
    files = [path.with_name(f"{path.stem}{mark}{path.suffix}") for mark in marks]
    if taken := [file for file in files if file.exists() and not overwrite]:
        raise InputError(
            f"{taken[0]} exists and was left as it is; choose another file, or replace it with --force."
        )
    for file, chosen in zip(files, sets, strict=True):
        atomic.write_text(file, json.dumps(_document(chosen, data), ensure_ascii=False) + "\n")
    return files


def read_forget_set(
    path: str | Path, examples: Examples | None = None, *, also: Sequence[str] = ()
) -> ForgetSet:
    """Read a forget set that `remanence select` wrote.

    Args:
        path: the file.
        examples: the training data at hand; with them, a set chosen from other data is refused, and so are
            ids that they do not have.
        also: digests of other forms of the same data (poisoned, or without some) that it may be chosen from.

    Raises:
        DataError: in one sentence, what is wrong with the file.
    """
    path = Path(path)
    document = _read_document(path)
    found = ForgetSet(str(document.get("name")), _own_ids(document, path), str(document.get("provenance")))
    if examples is not None:
        if document.get("data") not in (None, examples.digest(), *also):
            raise DataError(f"{path} was chosen from other data than those at hand (their digests differ).")
        examples.positions(found.ids)
    return found


def read_forget_set_for(path: str | Path, run: Run) -> ForgetSet:
    """Read a forget set for a run: chosen from its data set, or from what of it the run was trained on."""
    return read_forget_set(path, run.clean[0], also=[run.training_digest()])


def ids_from_file(path: Path, known: Ids, *, column: str = "id") -> ForgetSet:
    """The ids that a file lists, each of which must be among the known ones.

    A `.csv` or `.parquet` file has them in `column`, a `.json` file is a list (or an object with a list
    `ids`), any other file is text with one id a line; blank lines and those that begin with # are skipped.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        table = read_columns(path)
        entries = [(table.at(row), text) for row, text in enumerate(table.names(column))]
    elif suffix == ".json":
        entries = [(f"{path}, item {i}", str(each)) for i, each in enumerate(_json_ids(path))]
    else:
        numbered = enumerate(read_text(path).splitlines(), start=1)
        stripped = ((f"{path}, line {i}", line.strip()) for i, line in numbered)
        entries = [(place, text) for place, text in stripped if text and not text.startswith("#")]
    if not entries:
        raise DataError(f"{path} must list at least one id; it lists none.")
    return ForgetSet(path.stem, _found(entries, known), f"{len(entries)} ids from {path.name}")


def users_from_file(
    path: Path, known: Ids, *, id_column: str = "id", user_column: str = "user"
) -> tuple[Ids, list[str]]:
    """Whose each example is, from a table with a row an example; rows of unknown ids are left out."""
    table = read_columns(path)
    ids, users = table.ids(id_column).astype(np.str_), table.names(user_column)
    names = set(known.astype(np.str_).tolist())
    kept = [(each, user) for each, user in zip(ids.tolist(), users, strict=True) if each in names]
    if not kept:
        raise DataError(f"{path} must name ids of this data in {id_column!r}; none of its {len(ids)} is one.")
    texts = [each for each, _ in kept]
    return _like(texts, known), [user for _, user in kept]


def _found(entries: Sequence[tuple[str, str]], known: Ids) -> Ids:
    """The ids as the data have them; an unknown or repeated one is refused with its place."""
    names = set(known.astype(np.str_).tolist())
    first: dict[str, str] = {}
    for place, text in entries:
        if text not in names:
            raise DataError(f"{place}: no example has the id {text!r}.")
        if text in first:
            raise DataError(f"{place}: ids must be unique; {text!r} was already in {first[text]}.")
        first[text] = place
    return _like([text for _, text in entries], known)


def _like(texts: Sequence[str], known: Ids) -> Ids:
    return np.array(texts, dtype=np.str_) if known.dtype.kind == "U" else as_id_array(texts)


def _json_ids(path: Path) -> list[Any]:
    found = read_json(path)
    ids = found.get("ids") if isinstance(found, dict) else found
    if not isinstance(ids, list):
        raise DataError(f"{path} must be a list of ids, or an object with a list named ids.")
    for i, each in enumerate(ids):
        if type(each) not in (int, str):
            raise DataError(f"{path}, item {i}: an id must be a whole number or text; got {each!r}.")
    return ids


def _document(chosen: ForgetSet, data: str | None) -> dict[str, Any]:
    return {
        "remanence": _KIND,
        "format": _FORMAT,
        "version": __version__,
        "name": chosen.name,
        "provenance": chosen.provenance,
        "data": data,
        "ids": chosen.ids.tolist(),
    }


def _own_ids(document: dict[str, Any], path: Path) -> Ids:
    ids = document.get("ids")
    kinds = {type(each) for each in ids} if isinstance(ids, list) else set()
    try:
        if kinds == {str}:
            return np.array(ids, dtype=np.str_)
        if kinds == {int}:
            return np.array(ids, dtype=np.int64)
    except OverflowError:
        raise DataError(f"{path} must list ids of up to 64 bits; it has larger ones.") from None
    raise DataError(f"{path} must list ids, all whole numbers or all text; it does not.")


def _read_document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path} is not a file; `remanence select` makes forget sets.")
    document = read_json(path)
    if not isinstance(document, dict) or document.get("remanence") != _KIND:
        raise DataError(f"{path} is not a forget set; make one of it with `remanence select --how ids`.")
    if document.get("format") != _FORMAT:
        raise DataError(
            f"{path} was made by Remanence {document.get('version')} in format {document.get('format')}; this is "
            f"version {__version__}, which reads format {_FORMAT}."
        )
    return document
