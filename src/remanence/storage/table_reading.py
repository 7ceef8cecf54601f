"""Read a table of a TOML or JSON file into a dataclass; unknown keys and wrong types are refused by name."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from remanence.errors import InputError, RunFolderError, UnknownNameError

_Settings = TypeVar("_Settings")
_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "text", type(None): "nothing"}
_LARGEST = 2**63
"""Whole numbers are those of 64 bits, as arrays hold them."""


def read_record(kind: type[_Settings], table: Any, path: Path) -> _Settings:
    """A dataclass from a file of a folder that Remanence made; anything unexpected means that the file is damaged.

    Args:
        kind: the dataclass.
        table: the value that the file holds.
        path: the file, for the message.
    """
    try:
        return read_into(kind, _table(table, "the content"))
    except InputError as error:
        raise RunFolderError(f"{path} is damaged: {error}") from None


def read_into(kind: type[_Settings], table: Mapping[str, Any], where: str = "") -> _Settings:
    """A dataclass from a table.

    Args:
        kind: the dataclass; a field that is a dataclass itself is a table inside the table.
        table: keys and values as TOML gives them.
        where: the table's own name, for messages: `train`, say.
    """
    known = known_keys(kind)
    hints = get_type_hints(kind)
    values = {}
    for key, value in table.items():
        if key not in known:
            raise UnknownNameError("setting", _join(where, key), [_join(where, name) for name in known])
        values[key] = check_value(value, hints[key], _join(where, key))
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{error} (in [{where}])" if where else str(error)) from None
    except TypeError as error:
        raise InputError(f"The {f'table {where}' if where else 'file'} is incomplete: {error}.") from None


def known_keys(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a table of this kind."""
    return tuple(field.name for field in fields(kind) if field.init)


def check_value(value: Any, hint: Any, where: str) -> Any:
    """A value of the type that a hint names, with lists as tuples; anything else is refused by the name `where`."""
    origin, inside = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return read_into(hint, _table(value, where), where)
    if origin is Literal:
        if value not in inside:
            raise UnknownNameError(f"choice for `{where}`", str(value), [str(choice) for choice in inside])
        return value
    if origin in (Union, types.UnionType):
        return _one_of(value, inside, where)
    if origin is tuple:
        return _several(value, inside, where)
    if origin is not None:  # Mapping[str, ...]
        return {
            key: check_value(entry, inside[1], _join(where, key))
            for key, entry in _table(value, where).items()
        }
    return _plain(value, hint, where)


def _one_of(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    """A value of one of several types; the refusal is that of the first one."""
    if value is None and type(None) in choices:
        return None
    refusals = []
    for choice in choices:
        if choice is not type(None):
            try:
                return check_value(value, choice, where)
            except InputError as error:
                refusals.append(error)
    raise refusals[0]


def _several(value: Any, inside: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    """A list; a single value stands for a list of one."""
    entries = value if isinstance(value, list | tuple) else [value]
    if inside[-1] is Ellipsis:
        return tuple(check_value(entry, inside[0], where) for entry in entries)
    if len(entries) != len(inside):
        raise InputError(f"`{where}` must have {len(inside)} values; got {len(entries)}.")
    return tuple(check_value(entry, hint, where) for entry, hint in zip(entries, inside, strict=True))


def _plain(value: Any, hint: Any, where: str) -> Any:
    if hint is Any:
        return value
    allowed = (int, float) if hint is float else (hint,)
    wrong = not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool)
    if wrong or (isinstance(value, int) and not -_LARGEST <= value < _LARGEST):
        raise InputError(f"`{where}` must be {_WORDS[hint]}; got {_shown(value)}.")
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"`{where}` must be text without null characters; got {_shown(value)}.")
    return float(value) if hint is float else value


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return "a number of more than 64 bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"`{where}` must be a table; got {_shown(value)}.")
    return value


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
