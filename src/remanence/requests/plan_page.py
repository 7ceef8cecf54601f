"""The page of a plan, with pictures of the hardest examples beside ordinary ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.report import image_uri, write_html
from remanence.requests.plan import Plan
from remanence.scores import score_table
from remanence.training import Run
from remanence.types import Ids, as_ids

_SHOWN = 16


def check_page(path: Path, *, force: bool) -> None:
    """Refuse a page that would overwrite a file, such as the list of ids.

    Args:
        path: where the page is to be written.
        force: replace a page that exists.
    """
    if path.suffix.lower() != ".html":
        raise InputError(f"`page` must end in .html; got {path}. Nothing was changed.")
    if path.exists() and not force:
        raise InputError(
            f"{path} exists and was not changed; choose another `page`, or replace it with `force`."
        )


def write_plan_page(path: Path, run: Run, plan: Plan) -> None:
    """Write the page; examples that are not images are listed without pictures."""
    scores = score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")
    order = np.argsort(scores.values, kind="stable")
    middle = len(order) // 2
    ordinary = scores.ids[order[middle - _SHOWN // 2 : middle + _SHOWN // 2]]
    hardest = as_ids([member.id for member in plan.members[:_SHOWN]])
    losses = dict(zip(scores.ids.tolist(), scores.values.tolist(), strict=True))
    write_html(
        path,
        "plan.html",
        plan=plan.document(),
        hardest=_gallery(run, hardest, losses),
        ordinary=_gallery(run, ordinary, losses),
    )


def _gallery(run: Run, ids: Ids, losses: dict[Any, float]) -> list[dict[str, Any]]:
    examples = run.clean[0].take(ids)
    labels = examples.label_texts()
    return [
        {
            "image": _image(examples.input_at(row).numpy()),
            "label": labels[row],
            "id": example,
            "loss": losses[example],
        }
        for row, example in enumerate(ids.tolist())
    ]


def _image(values: NDArray[Any]) -> str | None:
    """[channels, height, width] as a picture; None for inputs of another shape."""
    if values.ndim != 3 or values.shape[0] not in (1, 3):
        return None
    low, high = float(values.min()), float(values.max())
    scaled = values if low >= 0 and high <= 1 else (values - low) / max(high - low, 1e-12)
    return image_uri(scaled[0] if len(scaled) == 1 else np.moveaxis(scaled, 0, -1))
