"""A plan as a page, with pictures of the hardest examples beside ordinary ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.report import image_uri, write_html
from remanence.requests.plan import Plan
from remanence.requests.request import trace_of
from remanence.scores import score_table
from remanence.training import Run
from remanence.types import Ids, as_ids

_SHOWN = 16


def write_plan_page(path: Path, run: Run, plan: Plan) -> None:
    """Write the page; examples that are no pictures are listed without."""
    losses = score_table(trace_of(run), ["privacy_loss"]).column("privacy_loss")
    order = np.argsort(losses.values, kind="stable")
    middle = losses.ids[order[len(order) // 2 - _SHOWN // 2 : len(order) // 2 + _SHOWN // 2]]
    known = dict(zip(losses.ids.tolist(), losses.values.tolist(), strict=True))
    hardest = as_ids([each.id for each in plan.members[:_SHOWN]])
    write_html(
        path,
        "plan.html",
        plan=plan.document(),
        hardest=_pictures(run, hardest, known),
        ordinary=_pictures(run, middle, known),
        members=plan.members,
    )


def _pictures(run: Run, ids: Ids, losses: dict[Any, float]) -> list[dict[str, Any]]:
    chosen = run.clean[0].take(ids)
    return [
        {
            "image": _image(chosen.inputs[row].numpy()),
            "label": chosen.class_names[int(chosen.labels[row])],
            "id": each,
            "loss": losses[each],
        }
        for row, each in enumerate(ids.tolist())
    ]


def _image(values: NDArray[Any]) -> str | None:
    """[channels, height, width] as a picture; None for anything else."""
    if values.ndim != 3 or values.shape[0] not in (1, 3):
        return None
    low, high = float(values.min()), float(values.max())
    scaled = values if low >= 0 and high <= 1 else (values - low) / max(high - low, 1e-12)
    return image_uri(scaled[0] if len(scaled) == 1 else np.moveaxis(scaled, 0, -1))
