"""Read a pickle that holds arrays of bytes, numbers and text, and build nothing else.

A pickle is a program. First, its instructions are checked without running them: only those that such a file needs
are allowed, and none may request more memory than the file has bytes. Then it runs, without access to numpy or any
other code: the few names that it needs are replaced by the small stand-ins below, every other name is refused before
it is looked up.
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
    """Stand-in for numpy.dtype; only unsigned bytes are accepted, by `_Array`."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and alignment, which do not matter for single bytes."""


class _Array:
    """Stand-in for numpy.ndarray."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or dtype.code != "u1" or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array of something other than bytes")
        flat = np.frombuffer(content, dtype=np.uint8)
        self.values = flat.reshape(shape, order="F" if fortran else "C")


class _Callable:
    """Stand-in for a name that the pickle calls; nothing in the file can change it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a name must not be changed")


def _new_array(*_: Any) -> _Array:
    return _Array()


def _refuse_call(*_: Any) -> None:
    raise pickle.UnpicklingError("ndarray must not be called")


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("text in an unknown encoding")
    return text.encode("latin1")


_STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _Callable(_new_array),
    ("numpy._core.multiarray", "_reconstruct"): _Callable(_new_array),
    ("numpy", "ndarray"): _Callable(_refuse_call),
    ("numpy", "dtype"): _Callable(_Dtype),
    ("_codecs", "encode"): _Callable(_encode),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name; any other name is refused."""
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise DataError(
                f"it asks for {f'{module}.{name}'!r}, and only arrays and text are allowed"
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
    """Refuse instructions that a file of arrays does not need, before any of them runs."""
    for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if instruction.name not in _INSTRUCTIONS:
            raise DataError(f"it uses the instruction {instruction.name}, which no file of arrays needs")
        if instruction.name == "LONG_BINPUT" and isinstance(argument, int) and argument > count:
            raise DataError("it numbers more parts than it has")  # unpickling would allocate memory for all


def read_pickle(content: bytes, *, what: str) -> dict[str, Any]:
    """Read the dictionary in a pickle, with its keys as text; `what` names the file in errors."""
    try:
        _check_instructions(content)
        document = _Reader(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{what} was refused: {error}.") from None
    except Exception as error:  # a damaged pickle may raise any error
        raise DataError(f"{what} is damaged or not a pickle of arrays ({type(error).__name__}).") from None
    if not isinstance(document, dict):
        raise DataError(f"{what} must hold a dictionary; it holds a {type(document).__name__}.")
    return {as_text(key): value for key, value in document.items()}


def get_array(document: dict[str, Any], key: str, *, what: str) -> NDArray[np.uint8]:
    """The array under a key of the dictionary that `read_pickle` returned."""
    values: NDArray[np.uint8] | None = getattr(document.get(key), "values", None)
    if not isinstance(values, np.ndarray):
        raise DataError(f"{what} must hold an array named {key!r}; it does not.")
    return values


def as_text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
