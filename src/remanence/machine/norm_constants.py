"""Constants that decide between the exact forms of a gradient norm: built in, or measured once on this machine.

All forms give the same norm to rounding; the constants say which is the fastest. `remanence doctor --measure` writes
those of this machine and torch build to the cache folder. Without that file the built-in ones hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

from remanence.machine.check import cache_folder, machine_key
from remanence.storage import atomic


@dataclass(frozen=True)
class NormConstants:
    """Constants of the choice between forms.

    Args:
        shift_work: cost of shifting and adding one entry of a Gram matrix, in multiply-adds of a matrix product.
        narrow: columns below which a matrix product leaves most of a vector register empty.
        channel_block: input and output channels that are multiples of it have kernels for grouped convolutions.
        gram_share: share of a symmetric Gram matrix that is computed, times the cost of its products beside others.
        built_bytes: size of a chunk of gradients with the inputs that it is built from: more leaves the cache
            before it is used.
        gram_bytes: size of a chunk of Gram matrices.
    """

    shift_work: int = 40
    narrow: int = 16
    channel_block: int = 16
    gram_share: float = 0.6
    built_bytes: int = 4 << 20
    gram_bytes: int = 2 << 20

    @property
    def label(self) -> str:
        """`built-in`, or `measured` and a digest of the values: equal labels give equal bits."""
        if self == BUILT_IN:
            return "built-in"
        return f"measured {hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:12]}"


BUILT_IN = NormConstants()
_in_use: list[NormConstants] = []
"""Constants of `using_constants`, which replace those of the machine; the last one counts."""


def norm_constants() -> NormConstants:
    """The constants in use: those measured on this machine, or else the built-in ones."""
    return _in_use[-1] if _in_use else _machine_constants()


@contextmanager
def using_constants(constants: NormConstants) -> Iterator[None]:
    """Use these constants during the block, in all threads."""
    _in_use.append(constants)
    try:
        yield
    finally:
        _in_use.pop()


def write_constants(constants: NormConstants) -> Path:
    """Keep measured constants for this machine and torch build; returns the path of the file."""
    path = _path()
    atomic.write_text(path, json.dumps(asdict(constants), indent=2) + "\n")
    _machine_constants.cache_clear()
    return path


@cache
def _machine_constants() -> NormConstants:
    """The constants in the cache folder; the built-in ones if the file is missing or damaged."""
    try:
        document = json.loads(_path().read_text())
        values = {
            field.name: type(getattr(BUILT_IN, field.name))(document[field.name])
            for field in fields(BUILT_IN)
        }
    except (OSError, ValueError, KeyError, TypeError):
        return BUILT_IN
    return NormConstants(**values) if all(value > 0 for value in values.values()) else BUILT_IN


def _path() -> Path:
    return cache_folder() / "machine" / f"{machine_key()}-norms.json"
