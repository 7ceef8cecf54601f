"""From artifacts to the figures of the demo: one plain document, the same that is written as results.json."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.stats import rankdata

from remanence._version import __version__
from remanence.demo.graph import DemoGraph, SeedStages
from remanence.demo.settings import DemoSettings
from remanence.demo.stages import METRICS
from remanence.forgetting import BAND_NAMES
from remanence.scores import PROXIES
from remanence.storage import Folder
from remanence.study import Store
from remanence.trials import Duration, duration_interval, summarize, time_to_unlearn

TIMED = ("mia", "ua")


def collect_results(settings: DemoSettings, graph: DemoGraph, store: Store) -> dict[str, Any]:
    """Everything the page shows, as numbers."""
    durations: dict[str, list[list[Duration]]] = {metric: [] for metric in TIMED}
    bands = []
    for name in BAND_NAMES:
        band = _band(name, graph, store)
        for metric in TIMED:
            durations[metric].append([Duration(*pair) for pair in band.pop(f"durations_{metric}")])
        bands.append(band)
    status = store.get(graph.seeds[0].select).document("status")
    return {
        "bands": bands,
        "spearman": {
            metric: rank_agreement([b["mean_privacy_loss"] for b in bands], durations[metric])
            for metric in TIMED
        },
        "proxies": _proxy_agreement(graph, store),
        "status": status["status"],
        "reasons": status["reasons"],
        "tuning": store.get(graph.tune).document("choice"),
        "settings": asdict(settings),
        "versions": versions(),
    }


def rank_agreement(losses: Sequence[float], durations: Sequence[Sequence[Duration]]) -> float | None:
    """Spearman correlation of the bands' privacy loss with their mean time to unlearn.

    Ties share their average rank. A band that some seed did not unlearn in time counts as slower than
    any band with the same mean whose seeds all did. None when all bands took equally long.
    """
    # lexicographic rank: first the mean (a lower bound where censored), then how many seeds were censored
    keys = [(summarize(each).mean, sum(not d.reached for d in each)) for each in durations]
    order = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    slow = rankdata([order[key] for key in keys])
    if np.ptp(slow) == 0:
        return None
    return float(np.corrcoef(rankdata(losses), slow)[0, 1])


def versions() -> dict[str, str]:
    """What computed this."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"remanence": __version__, "python": platform.python_version(), **packages}


def _band(name: str, graph: DemoGraph, store: Store) -> dict[str, Any]:
    losses = [_mean_loss(seed, name, store) for seed in graph.seeds]
    band: dict[str, Any] = {
        "name": name,
        "mean_privacy_loss": float(np.mean(losses)),
        "sd_privacy_loss": _sd(losses),
        "epochs_to_unlearn": {},
        "oracle": {},
        "curves": {},
    }
    for metric in METRICS:
        oracles = [
            [_curve(store.get(oracle), metric)[-1] for oracle in seed.oracles[name]] for seed in graph.seeds
        ]
        curves = [_curve(store.get(seed.unlearn[name]), metric) for seed in graph.seeds]
        everyone = [value for each in oracles for value in each]
        band["oracle"][metric] = {"mean": float(np.mean(everyone)), "sd": _sd(everyone)}
        band["curves"][metric] = curves
        if metric in TIMED:
            found = [
                time_to_unlearn(range(len(curve)), curve, float(np.mean(oracle)))
                for curve, oracle in zip(curves, oracles, strict=True)
            ]
            band["epochs_to_unlearn"][metric] = asdict(summarize(found)) | {
                "interval": duration_interval(found, resolution=1.0),
                "each": [{"epochs": d.value, "reached": d.reached} for d in found],
            }
            band[f"durations_{metric}"] = [(d.value, d.reached) for d in found]
    return band


def _proxy_agreement(graph: DemoGraph, store: Store) -> dict[str, dict[str, float]]:
    """Spearman correlation of each proxy with the privacy loss over all examples, mean and spread over seeds."""
    table = [store.get(seed.select).tensors("scores") for seed in graph.seeds]
    agreement = {}
    for name in PROXIES:
        found = [
            float(np.corrcoef(rankdata(scores["privacy_loss"]), rankdata(scores[name]))[0, 1])
            for scores in table
        ]
        agreement[name] = {"spearman": float(np.mean(found)), "sd": _sd(found)}
    return agreement


def _mean_loss(seed: SeedStages, name: str, store: Store) -> float:
    selected = store.get(seed.select)
    scores = selected.tensors("scores")
    inside = np.isin(scores["ids"], selected.document("forget_sets")[name])
    return float(scores["privacy_loss"][inside].mean())


def _curve(folder: Folder, metric: str) -> list[float]:
    return [row["value"] for row in folder.rows("measurements") if row["metric"] == metric]


def _sd(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
