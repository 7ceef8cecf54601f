"""Read a pickle that holds arrays of bytes, numbers and text, and build nothing else.

A pickle is a program. This reader never calls numpy's own reconstruction nor anything a file names: the
few names that such a file needs lead to small stand-ins, every other name is refused before it is looked up.
"""

from __future__ import annotations

import io
import pickle
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


def _new_array(*_: Any) -> _Array:
    return _Array()


def _encode(text: Any, codec: Any) -> bytes:
    if not isinstance(text, str) or codec not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("text in an unknown encoding")
    return text.encode("latin1")


_STANDS_FOR = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
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


def read_pickle(content: bytes, *, what: str) -> dict[str, Any]:
    """The dictionary in a pickle, its keys as text; `what` names the file in errors."""
    try:
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
