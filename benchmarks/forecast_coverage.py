"""How often the interval of a forecast holds, on runs and requests that nobody saw: one law per way, and one for all.

    python benchmarks/forecast_coverage.py --models 12 --seeds 42 43 44 --work .bench/coverage

For each seed a run of digits is trained and calibrated with `auto`, and twenty requests are forecast and carried out,
as `requests.py` does, without oracles. Each is forecast twice from the same calibration: from the sets that are
unlearned in the same way, as `plan` does, and by one law for all sets. What is finished is kept; run it again and it
goes on.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from requests import draw, prepared
from requests_page import COVERAGE

from remanence.forecast import CalibrationRun, Difficulty, Forecaster, difficulty_of
from remanence.requests import Calibration, ForgetOptions, Request, forget, make_plan
from remanence.requests.routing import way_of
from remanence.scores import score_table
from remanence.storage import atomic
from remanence.training import Run
from remanence.types import ForgetSet


def without_ways(difficulty: Difficulty) -> Difficulty:
    return replace(difficulty, way="")


def one_law(calibration: Calibration) -> Forecaster:
    """One law for all sets, and no steps for those that look forgotten."""
    assert calibration.settings.budget is not None  # a calibration has resolved settings
    runs = [
        CalibrationRun(run.name, without_ways(run.difficulty), run.steps, run.reached)
        for run in calibration.runs
    ]
    return Forecaster(runs, calibration.settings.budget)


def carry_out(
    run: Run, calibration: Calibration, simple: Forecaster, forget_set: ForgetSet, folder: Path
) -> dict[str, Any]:
    """One request: its forecasts, and what it took."""
    request, table = Request(forget_set, "0" * 64), score_table(run.trace())
    plan = make_plan(run, request, calibration)
    way = way_of(plan.method, plan.options, table.column("privacy_loss"), forget_set.ids)
    looks_forgotten = plan.criterion.is_close(plan.now[plan.criterion.metric])
    options = ForgetOptions(
        apart=True, look_in=(folder.parent / "nowhere",), keep_calibration=False, relearning=False
    )
    actual = forget(run, request, folder, options).evidence["actual"]
    forecasts = {
        "by_way": plan.forecast,
        "one_law": simple.forecast(difficulty_of(forget_set.ids, table, done=looks_forgotten)),
    }
    return {
        "request": forget_set.name,
        "size": len(forget_set.ids),
        "way": way,
        "looks_forgotten": looks_forgotten,
        "taken": actual["steps"],
        "reached": actual["reached"],
        "constant": median(known.steps for known in calibration.runs),
        "forecasts": {name: asdict(forecast) for name, forecast in forecasts.items()},
    }


def requests_of(seed: int, models: int, work: Path, workers: int) -> list[dict[str, Any]]:
    """Twenty requests on a run of this seed."""
    place = work / f"{models}-{seed}"
    (place / "nowhere").mkdir(parents=True, exist_ok=True)
    run, calibration = prepared(place / "run", workers, models, seed)
    assert calibration is not None  # models are asked for
    simple, rows = one_law(calibration), []
    for forget_set in draw(run):
        kept = place / f"{forget_set.name.replace(' ', '-')}.json"
        if not kept.exists():
            row = carry_out(run, calibration, simple, forget_set, place / kept.stem)
            atomic.write_text(kept, json.dumps({"models": models, "seed": seed, **row}) + "\n")
        rows.append(json.loads(kept.read_text()))
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path(".bench/coverage"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    new = [row for seed in given.seeds for row in requests_of(seed, given.models, given.work, given.workers)]
    path = given.results / COVERAGE
    kept = json.loads(path.read_text()) if path.exists() else []
    others = [
        row for row in kept if (row["models"], row["seed"]) not in {(r["models"], r["seed"]) for r in new}
    ]
    atomic.write_text(path, "[\n" + ",\n".join(map(json.dumps, [*others, *new])) + "\n]\n")


if __name__ == "__main__":
    main()
