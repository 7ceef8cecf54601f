"""Twenty requests one after another, the same twenty in one batch, and one retraining without all of them.

    python benchmarks/streams.py --work .bench/streams

What is finished is kept; run it again and it goes on. A few minutes on one core.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remanence.audit import METRICS, evaluate
from remanence.experiments import cached_oracle, oracle_seed
from remanence.requests import (
    CalibrationSettings,
    ForgetOptions,
    ForgetResult,
    Request,
    calibrate,
    forget,
    make_plan,
    make_request,
    read_calibration,
)
from remanence.requests.request_ledger import read_ledger
from remanence.storage import SEAL, atomic
from remanence.training import Recipe, Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet

REQUESTS, SIZE, SEED = 20, 20, 3
RECIPE = Recipe(epochs=15, learning_rate=0.05, batch_size=32, weight_decay=1e-3)
OPTIONS = ForgetOptions(relearning=False)
METRICS_OF_FIRST = ("mia_confidence", "log_odds", "ua")


def prepared(work: Path) -> Run:
    """A calibrated run."""
    settings = RunSettings("digits", "small_conv", RECIPE, seed=SEED, model_options={"width": 8})
    train_run(settings, work / "run", resume=True)
    run = open_run(work / "run")
    if not (work / "run" / "calibration" / SEAL).exists():
        calibrate(run, CalibrationSettings(models=20, sets=20), workers=1)
    return run


def draw(run: Run) -> list[ForgetSet]:
    """Disjoint random requests."""
    ids = np.random.default_rng(SEED).permutation(run.clean[0].ids)[: REQUESTS * SIZE]
    return [ForgetSet(f"request {k + 1}", part) for k, part in enumerate(np.array_split(ids, REQUESTS))]


def figures(first: Run, model: Run, forget_set: ForgetSet) -> dict[str, float]:
    """Test accuracy of a model, and what it shows of the first request; on the data of the first run."""
    evaluation = evaluate(model.model(), first.split(forget_set))
    return {"test": evaluation.test.accuracy} | {name: METRICS[name](evaluation) for name in METRICS_OF_FIRST}


def row_of(result: ForgetResult) -> dict[str, Any]:
    actual = result.evidence["actual"]
    return {
        "outcome": str(result.outcome),
        "steps": actual["stopped_at"],
        "seconds": read_ledger(result.run)[-1]["seconds"],
        "bound": read_ledger(result.run)[-1]["cumulative"],
        "verdict": actual["verdict"]["word"],
    }


def stream(run: Run, sets: list[ForgetSet], work: Path) -> list[dict[str, Any]]:
    """The requests one after another, each from the run that the one before left."""
    rows, current = [], run
    for number, forget_set in enumerate(sets, start=1):
        request = make_request(forget_set, current)
        advice = make_plan(current, request)
        result = forget(current, request, work / f"stream-{number}", OPTIONS)
        current = result.run
        facts = {"number": number, "action": advice.action, "advice": advice.recommendation()}
        rows.append(facts | row_of(result) | figures(run, current, sets[0]))
        print(json.dumps(rows[-1]), flush=True)
    return rows


def batch(run: Run, sets: list[ForgetSet], work: Path) -> dict[str, Any]:
    """The same requests in one unlearning."""
    requests: list[Request] = [make_request(forget_set, run) for forget_set in sets]
    options = ForgetOptions(relearning=False, apart=True)
    result = forget(run, requests, work / "batch", options)
    outcomes = [str(part["outcome"]) for part in result.parts]
    return row_of(result) | figures(run, result.run, sets[0]) | {"outcomes": outcomes}


def retrained(run: Run, sets: list[ForgetSet], work: Path) -> dict[str, Any]:
    """One model that was trained without all of them."""
    everything = ForgetSet("all", np.concatenate([forget_set.ids for forget_set in sets]))
    oracle = cached_oracle(run, everything, work / "oracles", seed=oracle_seed(SEED))
    cost = read_calibration(run).retraining
    return figures(run, oracle, sets[0]) | {"seconds": cost["seconds"], "steps": cost["steps"]}


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation. Cost is counted in steps: seconds depend on what else runs."""
    rows, whole, once = results["stream"], results["batch"], results["retrained"]
    taken = np.cumsum([row["steps"] for row in rows])
    dearer = int(np.searchsorted(taken, once["steps"])) + 1
    point = f"from request {dearer} on" if dearer <= len(rows) else "for none of them"
    in_sequence = [row["outcome"] for row in rows]
    lines = [
        "# Twenty requests, one after another",
        "",
        f"`make bench-streams` wrote this page: {REQUESTS} random requests of {SIZE} ids each on digits (small_conv of "
        f"width 8, {RECIPE.epochs} epochs), removed one after another, each from the model that the one before left; "
        "the same in one batch (`remanence forget run --ids 1.csv --ids 2.csv ...`); and one model retrained without "
        "all of them. The run is calibrated with 20 reference models; the method is `auto`.",
        "",
        "| | steps | of retraining | test accuracy | first request: mia_confidence | log_odds | ua |",
        "|---|---|---|---|---|---|---|",
        _summary("before", results["before"] | {"steps": 0}, once),
        _summary("20 in sequence", rows[-1] | {"steps": int(taken[-1])}, once),
        _summary("20 in one batch", whole, once),
        _summary("retrained once", once, once),
        "",
        f"All unlearning together takes more steps than retraining once {point}. `remanence plan` adds up the time "
        "that the ledger records, and says when that point is near.",
        "",
        f"Outcomes in sequence: {_tally(in_sequence)}. The batch: {whole['outcome']}; its {REQUESTS} requests on their "
        f"own: {_tally(whole['outcomes'])}. Requests of {SIZE} ids are at the lower edge of what can be judged.",
        "",
        "| request | plan | steps | steps so far / retraining | outcome | test accuracy | first request: "
        "mia_confidence | log_odds | bound on all so far |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(row, int(total) / once["steps"]) for row, total in zip(rows, taken, strict=True)),
        "",
        f"Retrained without all of them, the first request has mia_confidence {once['mia_confidence']:.3f} and "
        f"log_odds {once['log_odds']:.2f}. The bound is a heuristic unless training added real noise.",
        "",
    ]
    return "\n".join(lines)


def _tally(outcomes: list[str]) -> str:
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes)))


def _summary(name: str, row: dict[str, Any], once: dict[str, Any]) -> str:
    values = " | ".join(f"{row[metric]:.3f}" for metric in ("test", *METRICS_OF_FIRST))
    return f"| {name} | {row['steps']:.0f} | {row['steps'] / once['steps']:.2f} | {values} |"


def _line(row: dict[str, Any], share: float) -> str:
    bound = "infinite" if row["bound"]["value"] is None else f"{row['bound']['value']:.3g}"
    return (
        f"| {row['number']} | {row['action']} | {row['steps']} | {share:.2f} | {row['outcome']} | {row['test']:.3f} | "
        f"{row['mia_confidence']:.3f} | {row['log_odds']:.2f} | {bound} ({row['bound']['status']}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=Path(".bench/streams"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/streams.md"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/streams.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    run = prepared(given.work)
    sets = draw(run)
    results = {
        "before": figures(run, run, sets[0]),
        "stream": stream(run, sets, given.work),
        "batch": batch(run, sets, given.work),
        "retrained": retrained(run, sets, given.work),
    }
    atomic.write_text(given.results, json.dumps(results, indent=1) + "\n")
    atomic.write_text(given.page, page(results))


if __name__ == "__main__":
    main()
