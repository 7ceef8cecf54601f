"""Files that may come from anybody: whatever is in them, one error with one sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from remanence.errors import DataError, InputError, RunFolderError
from remanence.storage import create, open_folder
from remanence.storage.parsing import parse_json, parse_json_lines, parse_toml, read_arrays
from remanence.storage.table_reading import read_record

HERE = Path("file")


@dataclass(frozen=True)
class Inner:
    size: int
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    ids: tuple[int | str, ...] = ()
    pair: tuple[int, int] = (0, 0)
    kind: Literal["a", "b"] = "a"
    value: float | None = None
    anything: Mapping[str, Any] = field(default_factory=dict)


GOOD: dict[str, Any] = {"name": "x", "inner": {"size": 1, "rates": {"a": 1}}}


def test_a_record_is_read_with_its_types() -> None:
    more = {"ids": [1, "b"], "pair": [1, 2], "kind": "b", "value": 2, "anything": {"a": [None]}}
    record = read_record(Outer, GOOD | more, HERE)
    assert record == Outer("x", Inner(1, {"a": 1.0}), (1, "b"), (1, 2), "b", 2.0, {"a": [None]})
    assert read_record(Outer, GOOD | {"value": None}, HERE).value is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 1}, "`name` must be text; got 1"),
        ({"name": "a\0b"}, "without null characters"),
        ({"name": None}, "`name` must be text"),
        ({"inner": []}, "`inner` must be a table"),
        ({"inner": {}}, "is incomplete"),
        ({"inner": {"size": True}}, "`inner.size` must be a whole number"),
        ({"inner": {"size": 10**30}}, "a number of more than 64 bits"),
        ({"inner": {"size": 1, "rates": {"a": "b"}}}, "`inner.rates.a` must be a number"),
        ({"inner": {"size": 1, "more": 1}}, "no setting named 'inner.more'"),
        ({"ids": [1, [2]]}, "`ids` must be a whole number"),
        ({"pair": [1]}, "`pair` must have 2 values; got 1"),
        ({"kind": "c"}, "choice for `kind`"),
        ({"value": 10**400}, "`value` must be a number"),
        ({"value": "a" * 9999}, "a…"),
    ],
)
def test_a_record_of_another_shape_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RunFolderError, match="file is damaged") as refusal:
        read_record(Outer, GOOD | change, HERE)
    assert words in str(refusal.value)
    assert len(str(refusal.value)) < 250


@pytest.mark.parametrize(
    "content", [b"9" * 5000, b"NaN", b"[" * 9999, b'"\\ud800"', b"\xff", b'{"a":1,"a":2}', b""]
)
def test_json_that_cannot_be_used_is_refused(content: bytes) -> None:
    for parse in (parse_json, parse_json_lines):
        if content or parse is parse_json:
            with pytest.raises(RunFolderError, match="is damaged"):
                parse(content, HERE)


@pytest.mark.parametrize(
    "content", [b"a = " + b"9" * 5000, b"a = " + b"[" * 9999, b"\xff", b"a", b"a = 1\na = 2"]
)
def test_toml_that_cannot_be_used_is_refused(content: bytes) -> None:
    with pytest.raises(RunFolderError, match="is damaged"):
        parse_toml(content, HERE)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "got nothing"),
        ({"norms": np.zeros(3)}, "got float64 of 1 dimensions"),
        ({"norms": np.zeros((3, 1), np.int64)}, "got int64 of 2 dimensions"),
    ],
)
def test_arrays_of_another_shape_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    with create(tmp_path / "folder", "training") as draft:
        draft.tensors("trace", arrays)
    with pytest.raises(RunFolderError, match="expected 'norms' as floats of 2 dimensions") as refusal:
        open_folder(tmp_path / "folder").tensors("trace", norms="f2")
    assert words in str(refusal.value)


def test_a_truncated_archive_is_refused_at_every_length(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", a=np.arange(4), b=np.zeros((2, 2)))
    content = (tmp_path / "whole.npz").read_bytes()
    for end in range(0, len(content) - 1, 7):
        (tmp_path / "cut.npz").write_bytes(content[:end])
        with pytest.raises(DataError, match=r"cut\.npz is damaged or not an \.npz file"):
            read_arrays(tmp_path / "cut.npz")


def test_an_archive_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros((1234, 1)))
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content.replace(b"(1234, 1), ", b"(9**9**9,)"[:9] + b", "))
    with pytest.raises(DataError, match="is damaged"):
        read_arrays(tmp_path / "a.npz")


def test_a_pipe_in_a_folder_does_not_block(tmp_path: Path) -> None:
    with create(tmp_path / "folder", "training") as draft:
        draft.document("facts", {})
    folder = open_folder(tmp_path / "folder")
    (tmp_path / "folder" / "facts.json").unlink()
    os.mkfifo(tmp_path / "folder" / "facts.json")
    with pytest.raises(InputError, match=r"facts\.json is missing or cannot be read"):
        folder.document("facts")
