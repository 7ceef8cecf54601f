"""Read a pickle that holds arrays of bytes, numbers and text, and build nothing else.

A pickle is a program. First its instructions are read without running them: only those that such a file needs
may occur, and none may ask for more memory than the file has bytes. Then it runs, and never reaches numpy's own
reconstruction nor anything else that it names: the few names it needs lead to small stand-ins, every other name
is refused before it is looked up.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import DataError


class _Dtype:
    """What a pickled dtype says it is; only unsigned bytes are of use."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment mean nothing for single bytes."""


class _Array:
    """What a pickled array says it holds."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or dtype.code != "u1" or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array of something other than bytes")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.values = flat.reshape(shape, order="F" if fortran else "C")


class _Name:
    """What a pickle gets for a name: it can be called, and nothing in the file can alter it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a name is not to be altered")


def _new_array(*_: Any) -> _Array:
    return _Array()


def _only_a_name(*_: Any) -> None:
    raise pickle.UnpicklingError("ndarray is only to be named")


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("text in an unknown encoding")
    return text.encode("latin1")


_STANDS_FOR = {
    ("numpy.core.multiarray", "_reconstruct"): _Name(_new_array),
    ("numpy._core.multiarray", "_reconstruct"): _Name(_new_array),
    ("numpy", "ndarray"): _Name(_only_a_name),
    ("numpy", "dtype"): _Name(_Dtype),
    ("_codecs", "encode"): _Name(_encode),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name; a file that asks for any other is refused."""
        try:
            return _STANDS_FOR[module, name]
        except KeyError:
            raise DataError(
                f"it asks for {f'{module}.{name}'!r}, and nothing but arrays and text may be built"
            ) from None


_INSTRUCTIONS = {
    *("PROTO", "FRAME", "STOP", "MARK"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("SHORT_BINSTRING", "BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINBYTES", "BINBYTES"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
}


def _check_instructions(content: bytes) -> None:
    """Refuse instructions that no file of arrays needs, before any of them runs."""
    for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if instruction.name not in _INSTRUCTIONS:
            raise DataError(f"it uses the instruction {instruction.name}, which no file of arrays needs")
        if instruction.name == "LONG_BINPUT" and isinstance(argument, int) and argument > count:
            raise DataError("it numbers more parts than it has")  # the reader would make room for them all


def read_pickle(content: bytes, *, what: str) -> dict[str, Any]:
    """The dictionary in a pickle, its keys as text; `what` names the file in errors."""
    try:
        _check_instructions(content)
        found = _Reader(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{what} was refused: {error}.") from None
    except Exception as error:  # a damaged pickle may raise anything at all
        raise DataError(f"{what} is damaged or not a pickle of arrays ({type(error).__name__}).") from None
    if not isinstance(found, dict):
        raise DataError(f"{what} must hold a dictionary; it holds a {type(found).__name__}.")
    return {_text(key): value for key, value in found.items()}


def array_in(found: dict[str, Any], key: str, *, what: str) -> NDArray[np.uint8]:
    """The array under a key of what `read_pickle` gave."""
    values: NDArray[np.uint8] | None = getattr(found.get(key), "values", None)
    if not isinstance(values, np.ndarray):
        raise DataError(f"{what} must hold an array named {key!r}; it does not.")
    return values


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
