"""Read a TOML table into a dataclass; unknown keys and values of the wrong type are refused by name."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from remanence.errors import InputError, UnknownNameError

_Settings = TypeVar("_Settings")
_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}


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
        values[key] = _checked(value, hints[key], _join(where, key))
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{error} (in [{where}])" if where else str(error)) from None
    except TypeError as error:
        raise InputError(f"The study's {where or 'file'} is incomplete: {error}.") from None


def known_keys(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a table of this kind."""
    return tuple(field.name for field in fields(kind) if field.init)


def _checked(value: Any, hint: Any, where: str) -> Any:
    origin, inside = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return read_into(hint, _table(value, where), where)
    if origin is Literal:
        if value not in inside:
            raise UnknownNameError(f"choice for `{where}`", str(value), [str(choice) for choice in inside])
        return value
    if origin in (Union, types.UnionType):
        return _checked(value, next(choice for choice in inside if choice is not type(None)), where)
    if origin is tuple:
        if not isinstance(value, list):
            value = [value]
        return tuple(_checked(entry, inside[0], where) for entry in value)
    if origin is not None:  # Mapping[str, Any]
        return dict(_table(value, where))
    return _plain(value, hint, where)


def _plain(value: Any, hint: Any, where: str) -> Any:
    if hint is Any:
        return value
    allowed = (int, float) if hint is float else (hint,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):
        raise InputError(f"`{where}` must be {_WORDS[hint]}; got {value!r}.")
    return float(value) if hint is float else value


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"`{where}` must be a table; got {value!r}.")
    return value


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
