"""Norm traces inside a sealed folder."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.storage.folder import Draft, Folder
from remanence.types import Mechanism, NormTrace

_OPTIONAL = ("confidence", "error", "moments")


def write_trace(draft: Draft, trace: NormTrace) -> None:
    """Put a trace into a folder that is being filled."""
    arrays: dict[str, NDArray[Any]] = {"steps": trace.steps, "norms": trace.norms}
    arrays |= {name: values for name in _OPTIONAL if (values := getattr(trace, name)) is not None}
    text_ids = trace.ids.dtype.kind == "U"
    if not text_ids:
        arrays["ids"] = trace.ids
    draft.tensors("trace", arrays)
    facts = {"mechanism": asdict(trace.mechanism), "provenance": dict(trace.provenance)}
    draft.document("trace", facts | ({"ids": trace.ids.tolist()} if text_ids else {}))


def read_trace(folder: Folder) -> NormTrace:
    """The trace of a folder."""
    arrays, facts = folder.tensors("trace"), folder.document("trace")
    return NormTrace(
        ids=arrays["ids"] if "ids" in arrays else np.asarray(facts["ids"], dtype=np.str_),
        steps=arrays["steps"],
        norms=arrays["norms"],
        confidence=arrays.get("confidence"),
        error=arrays.get("error"),
        moments=arrays.get("moments"),
        mechanism=Mechanism(**facts["mechanism"]),
        provenance=facts["provenance"],
    )
