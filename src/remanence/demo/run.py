"""Run the demo: compute what is missing, then write the results and the page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from remanence._version import __version__
from remanence.demo.graph import build_graph
from remanence.demo.page import write_page
from remanence.demo.results import collect_results
from remanence.demo.settings import DemoSettings
from remanence.errors import InputError, RunFolderError
from remanence.report import human, interval_text
from remanence.storage import atomic
from remanence.storage.lock import exclusive
from remanence.study import Stage, Store, run_stages

_MARK = "remanence-demo.json"


class ProgressBar(Protocol):
    """The two calls of a rich progress bar that the demo makes."""

    def add_task(self, description: str, *, total: float) -> Any:
        """Begin a bar."""
        ...

    def advance(self, task_id: Any, advance: float = 1) -> None:
        """Move it."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What came of it: the results, and two lines for a person."""

    results: dict[str, Any]
    summary: str


def run_demo(
    settings: DemoSettings,
    out: Path,
    *,
    workers: int,
    progress: ProgressBar,
    note: Callable[[str], None] = lambda sentence: None,
) -> Outcome:
    """The whole story, from training to the page.

    Args:
        settings: what to do.
        out: where; new, empty, or the folder of an earlier demo, whose finished work is used.
        workers: how many processes.
        progress: told how far it is.
        note: told what was found of earlier work.
    """
    started = time.perf_counter()
    if workers < 1:
        raise InputError(f"`workers` must be at least 1; got {workers}.")
    _claim(out)
    with exclusive(out / ".lock", f"Another demo is running in {out}; wait for it or choose another --out."):
        store = Store(out / "stages")
        half_written = store.sweep()
        graph = build_graph(settings)

        def announce(reused: list[Stage], todo: list[Stage]) -> None:
            if reused or half_written:
                note(_found(out, len(reused), len(todo), half_written))
            bar.append(progress.add_task("Training and unlearning", total=sum(stage.cost for stage in todo)))

        bar: list[Any] = []
        tally = run_stages(
            graph.goals(),
            store,
            workers=workers,
            on_start=announce,
            on_done=lambda stage: progress.advance(bar[0], stage.cost),
        )
        results = collect_results(settings, graph, store)
        seconds = time.perf_counter() - started
        results["run"] = {
            "seconds": round(seconds, 1),
            "workers": workers,
            "computed": tally.computed,
            "reused": tally.reused,
            "seconds_by_stage": {kind: round(each, 1) for kind, each in sorted(tally.seconds.items())},
        }
        atomic.write_text(out / "results.json", json.dumps(results, indent=2, allow_nan=False) + "\n")
        write_page(out, results, graph, store, command=settings.command())
    return Outcome(results, _summary(results, out))


def _claim(out: Path) -> None:
    """Make the folder ours, or refuse it."""
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"{out} is a file; --out must be a folder.")
    if (out / _MARK).exists():
        return
    if out.exists() and any(not entry.name.startswith(".partial-") for entry in out.iterdir()):
        raise RunFolderError(
            f"{out} is not empty and not a demo's folder; choose another --out. Nothing was changed."
        )
    atomic.write_text(out / _MARK, json.dumps({"remanence": "demo", "version": __version__}) + "\n")


def _found(out: Path, reused: int, todo: int, half_written: int) -> str:
    swept = f" {half_written} half-written pieces were removed." if half_written else ""
    if not todo:
        return f"Found all {reused} stages finished in {out}; only the page is written anew.{swept}"
    return f"Found {reused} of {reused + todo} stages finished in {out}; going on with the rest.{swept}"


def _summary(results: dict[str, Any], out: Path) -> str:
    lines = ["", "Epochs of fine-tuning until an attacker can no longer tell (MIA), by difficulty:", ""]
    width = max(len(band["name"]) for band in results["bands"])
    for band in results["bands"]:
        found = band["epochs_to_unlearn"]["mia"]
        bound = "≥ " if found["reached"] < found["seeds"] else "  "
        bar = "█" * round(found["mean"])
        lines.append(
            f"  {band['name']:>{width}}  privacy loss {human(band['mean_privacy_loss']):>11}   "
            f"{bound}{found['mean']:4.1f} {interval_text(found['interval']):>15}  {bar}"
        )
    spearman = results["spearman"]["mia"]
    shown = "undefined (all bands equal)" if spearman is None else f"{spearman:.2f}"
    lines += [
        "",
        f"Rank agreement (Spearman) {shown}; status of these losses: {results['status']}.",
        f"{results['run']['seconds']:.0f} s on {results['run']['workers']} processes. Open {out / 'report.html'}",
    ]
    return "\n".join(lines)
