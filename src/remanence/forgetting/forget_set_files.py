"""Read and write forget sets, and read ids and users from tables and lists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from remanence._version import __version__
from remanence.data import Examples
from remanence.data.columns import as_id_array, read_columns, read_json, read_text
from remanence.data.read_limits import LIBRARY_LIMITS, ReadLimits
from remanence.errors import DataError, InputError
from remanence.storage import atomic
from remanence.training import Run
from remanence.types import ForgetSet, Ids

_KIND = "forget set"
_FORMAT = 1


def write_forget_sets(
    path: Path, sets: Sequence[ForgetSet], *, data: str | None = None, force: bool = False
) -> list[Path]:
    """Write one file per forget set; returns the files.

    A single set is written to `path`. With several sets, the name of each is added to the file name (band.json →
    band-median.json). If one of the files exists, nothing is written.

    Args:
        path: the file, .json.
        sets: the forget sets.
        data: digest of the data that they were selected from.
        force: replace files that exist.
    """
    if path.suffix.lower() != ".json":
        raise InputError(f"{path} must end in .json.")
    suffixes = [f"-{forget_set.name.replace(' ', '-')}" if len(sets) > 1 else "" for forget_set in sets]
    files = [path.with_name(f"{path.stem}{suffix}{path.suffix}") for suffix in suffixes]
    if existing := [file for file in files if file.exists() and not force]:
        raise InputError(
            f"{existing[0]} exists and was not changed; choose another file, or replace it with `force`."
        )
    for file, forget_set in zip(files, sets, strict=True):
        atomic.write_text(file, json.dumps(_document(forget_set, data), ensure_ascii=False) + "\n")
    return files


def read_forget_set(
    path: str | Path,
    examples: Examples | None = None,
    *,
    also: Sequence[str] = (),
    limits: ReadLimits = LIBRARY_LIMITS,
) -> ForgetSet:
    """Read a forget set that `remanence select` wrote.

    Args:
        path: the file.
        examples: the training data; when given, a set that was selected from other data is refused, and so are
            unknown ids.
        also: digests of further versions of the data (poisoned, or without some examples) that are accepted.
        limits: a larger file is refused.
    """
    path = Path(path)
    document = _read_document(path, limits)
    forget_set = ForgetSet(
        str(document.get("name")), _listed_ids(document, path, limits), str(document.get("provenance"))
    )
    if examples is not None:
        if document.get("data") not in (None, examples.digest(), *also):
            raise DataError(f"{path} was chosen from other data than the data given (their digests differ).")
        examples.positions(forget_set.ids)
    return forget_set


def read_forget_set_for(path: str | Path, run: Run, *, limits: ReadLimits = LIBRARY_LIMITS) -> ForgetSet:
    """Read a forget set that was selected from the data of a run, or any other list of ids of these data."""
    path = Path(path)
    if path.is_file() and not is_forget_set(path):
        return ids_from_file(path, run.clean[0].ids, limits=limits)
    return read_forget_set(path, run.clean[0], also=_digests(run), limits=limits)


def _digests(run: Run) -> list[str]:
    """Digests of the data that a forget set of this run may belong to."""
    current = [run.training_digest()]
    if len(run.present(run.removed)) == len(run.removed) or not run.folder.has("trace.safetensors"):
        return current
    # removed examples were erased from the data since: the trace knows the data as they were
    return [*current, run.trace().provenance.get("data", "")]


def ids_from_file(
    path: Path, known: Ids, *, column: str = "id", limits: ReadLimits = LIBRARY_LIMITS
) -> ForgetSet:
    """The ids in a file, as `listed_ids` reads it; every one must be known."""
    entries = listed_ids(path, column=column, limits=limits)
    return named_list(path, _known_ids(entries, known))


def named_list(path: Path, ids: Ids) -> ForgetSet:
    """The forget set of ids that were read from a file."""
    return ForgetSet(path.stem, ids, f"{len(ids)} ids from {path.name}")


def listed_ids(
    path: Path, *, column: str = "id", limits: ReadLimits = LIBRARY_LIMITS
) -> list[tuple[str, str]]:
    """The place and the text of every id in a file.

    A `.csv` or `.parquet` file has them in `column`. A `.json` file is a list, or an object with a list `ids`. Any
    other file is text with one id per line; blank lines and lines that begin with # are skipped.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file.")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        table = read_columns(path, only=column, limits=limits)
        entries = [(table.at(row), text) for row, text in enumerate(table.names(column))]
    elif suffix == ".json":
        entries = [(f"{path}, item {i}", str(example)) for i, example in enumerate(_json_ids(path, limits))]
    else:
        numbered = enumerate(read_text(path, limits).splitlines(), start=1)
        stripped = ((f"{path}, line {i}", line.strip()) for i, line in numbered)
        entries = [(place, text) for place, text in stripped if text and not text.startswith("#")]
    if not entries:
        raise DataError(f"{path} must list at least one id; it lists none.")
    return entries


def read_id_list(path: Path, *, column: str = "id") -> Ids:
    """The ids in a forget set or in any other list of ids, when the data are not known yet."""
    if is_forget_set(path):
        return read_forget_set(path).ids
    entries = listed_ids(path, column=column)
    refuse_repeated(entries)
    return as_id_array([text for _, text in entries])


def is_forget_set(path: Path) -> bool:
    """Whether a file is a forget set, and not another list of ids."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        document = read_json(path)
    except DataError:
        return False  # `listed_ids` reports the place of the error
    return isinstance(document, dict) and "remanence" in document


def users_from_file(
    path: Path, known: Ids, *, id_column: str = "id", user_column: str = "user"
) -> tuple[Ids, list[str]]:
    """The ids and their users, from a table with one row per example; rows with unknown ids are skipped."""
    table = read_columns(path)
    ids, users = table.ids(id_column).astype(np.str_), table.names(user_column)
    names = set(known.astype(np.str_).tolist())
    kept = [(example, user) for example, user in zip(ids.tolist(), users, strict=True) if example in names]
    if not kept:
        raise DataError(f"{path} must name ids of this data in {id_column!r}; none of its {len(ids)} is one.")
    return like_known([example for example, _ in kept], known), [user for _, user in kept]


def _known_ids(entries: Sequence[tuple[str, str]], known: Ids) -> Ids:
    """The ids with the type of the known ones; an unknown or repeated id is refused with its place."""
    names = set(known.astype(np.str_).tolist())
    if unknown := [(place, text) for place, text in entries if text not in names]:
        place, text = unknown[0]
        more = f" In all, {len(unknown)} of {len(entries)} ids are unknown." if len(unknown) > 1 else ""
        raise DataError(f"{place}: no example has the id {text!r}.{more}")
    refuse_repeated(entries)
    return like_known([text for _, text in entries], known)


def refuse_repeated(entries: Sequence[tuple[str, str]]) -> None:
    """Refuse a list that has an id twice."""
    first: dict[str, str] = {}
    for place, text in entries:
        if text in first:
            raise DataError(f"{place}: ids must be unique; {text!r} was already in {first[text]}.")
        first[text] = place


def like_known(texts: Sequence[str], known: Ids) -> Ids:
    """Ids with the type of the known ones."""
    return np.array(texts, dtype=np.str_) if known.dtype.kind == "U" else as_id_array(texts)


def _json_ids(path: Path, limits: ReadLimits) -> list[Any]:
    content = read_json(path, limits)
    ids = content.get("ids") if isinstance(content, dict) else content
    if not isinstance(ids, list):
        raise DataError(f"{path} must be a list of ids, or an object with a list named ids.")
    for i, example in enumerate(ids):
        if type(example) not in (int, str):
            raise DataError(f"{path}, item {i}: an id must be a whole number or text; got {example!r}.")
    return ids


def _document(forget_set: ForgetSet, data: str | None) -> dict[str, Any]:
    return {
        "remanence": _KIND,
        "format": _FORMAT,
        "version": __version__,
        "name": forget_set.name,
        "provenance": forget_set.provenance,
        "data": data,
        "ids": forget_set.ids.tolist(),
    }


def _listed_ids(document: dict[str, Any], path: Path, limits: ReadLimits) -> Ids:
    ids = document.get("ids")
    kinds = {type(example) for example in ids} if isinstance(ids, list) else set()
    try:
        if isinstance(ids, list) and kinds == {str}:
            limits.check_texts(path, ids)
            return np.array(ids, dtype=np.str_)
        if kinds == {int}:
            return np.array(ids, dtype=np.int64)
    except OverflowError:
        raise DataError(f"{path} must list ids of up to 64 bits; it has larger ones.") from None
    raise DataError(f"{path} must list ids, all whole numbers or all text; it does not.")


def _read_document(path: Path, limits: ReadLimits) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path} is not a file; forget sets are made by `remanence select`.")
    document = read_json(path, limits)
    if not isinstance(document, dict) or document.get("remanence") != _KIND:
        raise DataError(
            f"{path} is not a forget set; make one from it with `remanence select`, by the rule `ids`."
        )
    if document.get("format") != _FORMAT:
        raise DataError(
            f"{path} was made by Remanence {document.get('version')} in format {document.get('format')}; this is "
            f"version {__version__}, which reads format {_FORMAT}."
        )
    return document
