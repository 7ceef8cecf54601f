"""The demo's page and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from remanence.data import digits
from remanence.demo.graph import DemoGraph
from remanence.report import (
    image_uri,
    interval_text,
    proxies_figure,
    save_png,
    time_to_unlearn_figure,
    to_svg,
    unlearning_curves_figure,
    write_html,
)
from remanence.scores import PROXIES
from remanence.study import Store
from remanence.trials.stopping import TOLERANCE

_SHOWN = 16


def write_page(out: Path, results: dict[str, Any], graph: DemoGraph, store: Store, *, command: str) -> None:
    """Write report.html and figures/*.png beside results.json."""
    scores = store.get(graph.seeds[0].select).tensors("scores")
    limit = results["settings"]["unlearning_epochs"]
    bands = results["bands"]
    drawn = {
        "time": time_to_unlearn_figure(
            bands, {"mia": "by membership attack (MIA)", "ua": "by accuracy (UA)"}, limit
        ),
        "mia": unlearning_curves_figure(bands, "mia", "called non-member, %", TOLERANCE),
        "ua": unlearning_curves_figure(bands, "ua", "misread, %", TOLERANCE),
        "proxies": proxies_figure(
            scores["privacy_loss"],
            {name: scores[name] for name in PROXIES},
            {name: results["proxies"][name]["spearman"] for name in PROXIES},
        ),
    }
    for name, figure in drawn.items():
        save_png(figure, out / "figures" / f"{name}.png")
    order = np.argsort(scores["privacy_loss"], kind="stable")
    write_html(
        out / "report.html",
        "demo.html",
        **results,
        figures={name: to_svg(figure) for name, figure in drawn.items()},
        easy_pictures=_pictures(scores, order[:_SHOWN]),
        hard_pictures=_pictures(scores, order[::-1][:_SHOWN]),
        easiest=bands[0]["epochs_to_unlearn"]["mia"],
        hardest=bands[-1]["epochs_to_unlearn"]["mia"],
        agreement=results["spearman"]["mia"],
        size=results["settings"]["band_size"],
        n_train=len(order),
        limit=limit,
        learning_rate=results["tuning"]["learning_rate"],
        command=command,
        facts=_facts(results),
        interval_text=interval_text,
    )


def _pictures(scores: dict[str, Any], rows: Any) -> list[dict[str, Any]]:
    train, _ = digits()
    chosen = train.take(scores["ids"][rows])
    return [
        {
            "image": image_uri(chosen.inputs[i, 0].numpy()),
            "label": chosen.class_names[int(chosen.labels[i])],
            "loss": float(scores["privacy_loss"][row]),
            "id": int(chosen.ids[i]),
        }
        for i, row in enumerate(rows)
    ]


def _facts(results: dict[str, Any]) -> list[tuple[str, str]]:
    settings = dict(results["settings"])
    training = settings.pop("training")
    facts = {f"training: {key}": value for key, value in training.items()} | settings
    facts |= {
        f"distance to oracle at learning rate {k}": f"{v:.4f}"
        for k, v in results["tuning"]["distance_to_oracle"].items()
    }
    facts |= {f"version: {name}": value for name, value in results["versions"].items()}
    facts |= {f"run: {name}": value for name, value in results["run"].items()}
    return [(name.replace("_", " "), str(value)) for name, value in facts.items()]
