"""Write and read traces in sealed folders."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.storage.folder import Draft, Folder
from remanence.types import Mechanism, Trace

TRACE_FILES = ("trace.safetensors", "trace.json")
_OPTIONAL = ("confidence", "error", "moments")


def write_trace(draft: Draft, trace: Trace) -> None:
    arrays: dict[str, NDArray[Any]] = {"steps": trace.steps, "norms": trace.norms}
    arrays |= {name: values for name in _OPTIONAL if (values := getattr(trace, name)) is not None}
    text_ids = trace.ids.dtype.kind == "U"
    if not text_ids:
        arrays["ids"] = trace.ids
    draft.tensors("trace", arrays)
    document = {"mechanism": asdict(trace.mechanism), "provenance": dict(trace.provenance)}
    draft.document("trace", document | ({"ids": trace.ids.tolist()} if text_ids else {}))


def read_trace(folder: Folder) -> Trace:
    arrays, document = folder.tensors("trace"), folder.document("trace")
    return Trace(
        ids=arrays["ids"] if "ids" in arrays else np.asarray(document["ids"], dtype=np.str_),
        steps=arrays["steps"],
        norms=arrays["norms"],
        mechanism=Mechanism(**document["mechanism"]),
        provenance=document["provenance"],
        **{name: arrays.get(name) for name in _OPTIONAL},
    )
