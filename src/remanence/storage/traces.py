"""Write and read traces in sealed folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError, RunFolderError
from remanence.storage.folder import Draft, Folder
from remanence.types import OPTIONAL_COLUMNS, Mechanism, Trace

TRACE_FILES = ("trace.safetensors", "trace.json")


@dataclass(frozen=True)
class _TraceDocument:
    """What trace.json holds; the ids are there if they are text."""

    mechanism: Mechanism
    provenance: Mapping[str, str]
    ids: tuple[str, ...] = ()


def write_trace(draft: Draft, trace: Trace) -> None:
    arrays: dict[str, NDArray[Any]] = {"steps": trace.steps, "norms": trace.norms}
    arrays |= {name: values for name in OPTIONAL_COLUMNS if (values := getattr(trace, name)) is not None}
    text_ids = trace.ids.dtype.kind == "U"
    if not text_ids:
        arrays["ids"] = trace.ids
    draft.tensors("trace", arrays)
    document = {"mechanism": asdict(trace.mechanism), "provenance": dict(trace.provenance)}
    draft.document("trace", document | ({"ids": trace.ids.tolist()} if text_ids else {}))


def read_trace(folder: Folder) -> Trace:
    arrays, document = folder.tensors("trace", steps="i1", norms="f2"), folder.record("trace", _TraceDocument)
    try:
        return Trace(
            ids=arrays["ids"] if "ids" in arrays else np.asarray(document.ids, dtype=np.str_),
            steps=arrays["steps"],
            norms=arrays["norms"],
            mechanism=document.mechanism,
            provenance=document.provenance,
            **{name: arrays.get(name) for name in OPTIONAL_COLUMNS},
        )
    except InputError as error:
        raise RunFolderError(f"The trace of {folder.path} is damaged: {error}") from None
