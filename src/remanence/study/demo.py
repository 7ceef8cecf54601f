"""The demo: run the study `demo` in a folder of its own, and write its page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from remanence._version import __version__
from remanence.errors import InputError, RunFolderError
from remanence.report import human, image_uri, inline_svg, interval_text, write_html
from remanence.stages import Stage, Store, run_stages
from remanence.storage import atomic
from remanence.storage.lock import exclusive
from remanence.study.catalog import CATALOG, load_study
from remanence.study.provenance import settings_of
from remanence.study.running import Planned, plan
from remanence.versions import versions

_MARK = "remanence-demo.json"
_SHOWN = 16


class ProgressBar(Protocol):
    """The two calls of a rich progress bar that the demo makes."""

    def add_task(self, description: str, *, total: float) -> Any: ...

    def advance(self, task_id: Any, advance: float = 1) -> None: ...


@dataclass(frozen=True)
class DemoResult:
    """The numbers, and a few lines that summarize them."""

    results: dict[str, Any]
    summary: str


def run_demo(
    out: Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    workers: int | None = None,
    progress: ProgressBar,
    note: Callable[[str], None] = lambda sentence: None,
) -> DemoResult:
    """Train, score, unlearn and compare on scikit-learn's digits; write the results and a page.

    Args:
        out: folder for the results; new, empty, or of an earlier demo, whose finished work is used.
        quick: a smaller version that shows that everything works.
        seeds: independent repetitions; 5 by default, 1 with `quick`.
        workers: number of processes; one per core by default.
        progress: a progress bar.
        note: called with a sentence about earlier work that was found.
    """
    started = time.perf_counter()
    workers = (os.cpu_count() or 1) if workers is None else workers
    for name, value in (("workers", workers), ("seeds", seeds)):
        if value is not None and value < 1:
            raise InputError(f"`{name}` must be at least 1; got {value}.")
    planned = _planned(quick, seeds)
    _claim(out)
    with exclusive(out / ".lock", f"Another demo is running in {out}; wait for it or choose another folder."):
        store = Store(out / "stages")
        swept = store.sweep()
        bar: list[Any] = []

        def begin(reused: list[Stage], todo: list[Stage]) -> None:
            if reused or swept:
                note(_earlier_work(out, len(reused), len(todo), swept))
            bar.append(progress.add_task("Training and unlearning", total=sum(stage.cost for stage in todo)))

        tally = run_stages(
            [planned.goal],
            store,
            workers=workers,
            on_start=begin,
            on_done=lambda stage: progress.advance(bar[0], stage.cost),
        )
        results = _results(planned, store)
        results["run"] = {
            "seconds": round(time.perf_counter() - started, 1),
            "workers": workers,
            "computed": tally.computed,
            "reused": tally.reused,
            "seconds_by_stage": {kind: round(seconds, 1) for kind, seconds in sorted(tally.seconds.items())},
        }
        atomic.write_json(out / "results.json", results)
        _write_page(out, results, planned, store)
    return DemoResult(results, _summary(results, out))


def _planned(quick: bool, seeds: int | None) -> Planned:
    overrides = [] if seeds is None else [f"seeds={seeds}", f"tune.seeds={seeds}"]
    return plan(load_study(str(CATALOG / "demo.toml"), "smoke" if quick else "cpu", overrides))


def _claim(out: Path) -> None:
    """Mark the folder as the demo's, or refuse it."""
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"{out} is a file; `out` must be a folder.")
    if (out / _MARK).exists():
        return
    if out.exists() and any(not entry.name.startswith(".partial-") for entry in out.iterdir()):
        raise RunFolderError(
            f"{out} is not empty and not a demo's folder; choose another `out`. Nothing was changed."
        )
    atomic.write_text(out / _MARK, json.dumps({"remanence": "demo", "version": __version__}) + "\n")


def _earlier_work(out: Path, reused: int, todo: int, swept: int) -> str:
    removed = f" {swept} half-written artifacts were removed." if swept else ""
    if not todo:
        return f"Found all {reused} stages finished in {out}; only the page is written again.{removed}"
    return f"Found {reused} of {reused + todo} stages finished in {out}; computing the rest.{removed}"


def _results(planned: Planned, store: Store) -> dict[str, Any]:
    document = store.get(planned.goal).document("results")
    return {
        **document["numbers"],
        "verdicts": document["verdicts"],
        "preset": planned.study.preset,
        "settings": settings_of(planned.study),
        "versions": versions(),
    }


def _write_page(out: Path, results: dict[str, Any], planned: Planned, store: Store) -> None:
    """Write report.html and figures/*.png beside results.json."""
    folder = store.get(planned.goal)
    for name in ("times", "curves", "proxies"):
        atomic.write_bytes(
            out / "figures" / f"{name}.png", (folder.path / f"figures/{name}.png").read_bytes()
        )
    bands, study = results["bands"], planned.study
    first = next(
        stage
        for role, stage in zip(planned.goal.roles, planned.goal.parts, strict=True)
        if role["role"] == "score"
    )
    scores = store.get(first).tensors("scores")
    order = np.argsort(scores["privacy_loss"], kind="stable")
    command = f"remanence demo --seeds {study.seeds}" + (" --quick" if study.preset == "smoke" else "")
    write_html(
        out / "report.html",
        "demo.html",
        **results,
        figures={
            name: inline_svg((folder.path / f"figures/{name}.svg").read_text())
            for name in ("times", "curves", "proxies")
        },
        easy_pictures=_pictures(planned, scores, order[:_SHOWN]),
        hard_pictures=_pictures(planned, scores, order[::-1][:_SHOWN]),
        easiest=bands[0]["epochs_to_unlearn"]["mia_confidence"],
        hardest=bands[-1]["epochs_to_unlearn"]["mia_confidence"],
        agreement=results["spearman"]["mia_confidence"],
        size=round(study.forget.sizes[0]),
        n_train=len(order),
        limit=study.unlearn.epochs,
        learning_rate=results["tuning"][study.unlearn.methods[0]]["learning_rate"],
        command=command,
        facts=_facts(results),
        interval_text=interval_text,
    )


def _pictures(planned: Planned, scores: dict[str, Any], rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    train, _ = planned.study.data.load()
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
    facts = {
        f"{section}: {key}": value
        for section, table in results["settings"].items()
        if isinstance(table, dict)
        for key, value in table.items()
    }
    for method, choice in results["tuning"].items():
        facts |= {
            f"{method}: distance to the oracles at learning rate {rate}": f"{distance:.4f}"
            for rate, distance in choice["distance_to_oracle"].items()
        }
    facts |= {f"version: {name}": value for name, value in results["versions"].items()}
    facts |= {f"run: {name}": value for name, value in results["run"].items()}
    return [(name.replace("_", " "), str(value)) for name, value in facts.items()]


def _summary(results: dict[str, Any], out: Path) -> str:
    lines = ["", "Epochs of fine-tuning until an attacker can no longer tell (MIA), by difficulty:", ""]
    width = max(len(band["name"]) for band in results["bands"])
    for band in results["bands"]:
        times = band["epochs_to_unlearn"]["mia_confidence"]
        bound = "≥ " if times["reached"] < times["seeds"] else "  "
        bar = "█" * round(times["mean"])
        lines.append(
            f"  {band['name']:>{width}}  privacy loss {human(band['mean_privacy_loss']):>11}   "
            f"{bound}{times['mean']:4.1f} {interval_text(times['interval']):>15}  {bar}"
        )
    spearman = results["spearman"]["mia_confidence"]
    shown = "undefined (all times equal)" if spearman is None else f"{spearman:.2f}"
    lines += [
        "",
        f"Rank agreement (Spearman) {shown}; status of these losses: {results['status']}.",
        f"{results['run']['seconds']:.0f} s on {results['run']['workers']} processes. Open {out / 'report.html'}",
    ]
    return "\n".join(lines)
