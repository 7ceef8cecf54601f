"""How long each unlearning method takes for the easiest and the hardest examples of digits, over three seeds.

The demo's setting: `small_conv` of width 16, 35 epochs at a constant learning rate; forget sets of 100 with the lowest
and the highest privacy loss; two oracles for each. Every method's hyperparameters are chosen from a few on a random
forget set, as `remanence tune` would choose. Stages are kept in --work, so that a killed benchmark goes on. Writes the
page docs/results/methods.md and the numbers as JSON.
"""

import argparse
import copy
import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from remanence.data import Split, digits
from remanence.demo import DemoSettings
from remanence.demo.graph import SeedStages, build_graph
from remanence.models import small_conv
from remanence.storage import Draft, Folder
from remanence.study import Stage, StageKind, Store, run_stages
from remanence.training import load_weights
from remanence.trials import Duration, Tried, every_steps, run_trial, summarize, time_to_unlearn
from remanence.trials.attempt import balance
from remanence.trials.choice import fastest_of_the_best
from remanence.types import ForgetSet, Measurement
from remanence.unlearning import make_method

METRICS = ("ua", "ra", "test", "mia")
AIM = ("mia", "test")
BANDS = {"lowest": "easiest 100", "highest": "hardest 100"}
TIMED = {"mia": "membership attack (MIA)", "ua": "accuracy (UA)"}
TRAINED = DemoSettings.full().training
RATES = {"learning_rate": (0.05, 0.1, 0.2)}
SMALLER = {"learning_rate": (0.003, 0.01, 0.03)}
# method: hyperparameters to choose from, what is held fixed, and steps between evaluations (an epoch has 38)
METHODS: dict[str, tuple[dict[str, tuple[float, ...]], dict[str, Any], int]] = {
    "finetune": (RATES, {"epochs": 30}, 38),
    "noisy_finetune": (RATES, {"epochs": 30, "noise": 0.01}, 38),
    "l1_sparse": (RATES | {"coefficient": (1e-5, 1e-4)}, {"epochs": 30}, 38),
    "gradient_ascent": ({"learning_rate": (1e-3, 3e-3, 1e-2)}, {"epochs": 10}, 2),
    "neggrad_plus": (SMALLER, {"epochs": 10}, 19),
    "random_label": (SMALLER, {"epochs": 10}, 19),
    "scrub": (SMALLER, {"epochs": 10, "max_epochs": 3}, 19),
    "salun": (SMALLER, {"epochs": 10}, 19),
}
PAPER = ("finetune", "noisy_finetune", "l1_sparse")


def _unlearn(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    trained, selected, *tuned = inputs
    options = params["options"] | (tuned[0].document("choice")["options"] if tuned else {})
    train, test = digits()
    ids = np.asarray(selected.document("forget_sets")[params["forget"]])
    split = Split(train, test, ForgetSet(params["forget"], ids))
    model = small_conv(width=DemoSettings.full().width)
    load_weights(trained, model)
    method = make_method(params["method"], options, TRAINED)
    steps = method.begin(copy.deepcopy(model), split, seed=params["seed"]).total_steps
    at = set(every_steps(steps, params["every"]).tolist())
    rows = run_trial(model, method, split, METRICS, at=at, seed=params["seed"])
    draft.rows("measurements", map(asdict, rows))


def _choose(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    """Inputs: for every seed its oracle for the random set, then its trials, one for each configuration."""
    grid, group = params["grid"], 1 + len(params["grid"])
    curves: list[list[list[tuple[int, float]]]] = [[] for _ in grid]
    for first in range(0, len(inputs), group):
        oracle, *runs = inputs[first : first + group]
        goal = {name: values(oracle, name)[-1][1] for name in AIM}
        for i, run in enumerate(runs):
            curves[i].append(balance([row for row in measured(run) if row.metric in AIM], goal))
    tried, before = [], []
    for i, options in enumerate(grid):
        steps = [step for step, _ in curves[i][0]]
        mean = np.mean([[value for _, value in curve] for curve in curves[i]], axis=0).tolist()
        before.append(mean[0])
        tried.append(Tried(i, options, tuple(steps[1:]), tuple(mean[1:])))
    chosen, steps_taken = fastest_of_the_best(tried, float(np.mean(before)))
    table = [{"options": each.options, "balance": each.best} for each in tried]
    draft.document(
        "choice", {"options": chosen.options, "steps": steps_taken, "untouched": before[0], "table": table}
    )


UNLEARN = StageKind("method", 1, _unlearn)
CHOOSE = StageKind("choose", 1, _choose)


def measured(folder: Folder) -> list[Measurement]:
    return [Measurement(**row) for row in folder.rows("measurements")]


def values(folder: Folder, metric: str) -> list[tuple[int, float]]:
    return [(row.step, row.value) for row in measured(folder) if row.metric == metric]


def build(trunks: list[SeedStages], name: str) -> tuple[Stage, dict[str, list[Stage]]]:
    """The choice of a method's hyperparameters, and its runs on each band, one a seed."""
    choices, fixed, every = METHODS[name]
    grid = [dict(zip(choices, point, strict=True)) for point in product(*choices.values())]
    needs: list[Stage] = []
    for seed, trunk in enumerate(trunks):
        needs += trunk.oracles["random"]
        # half the length is enough to tell configurations apart
        short = fixed | {"epochs": fixed["epochs"] // 2}
        for options in grid:
            params = {"method": name, "forget": "random", "seed": seed, "every": every}
            stage = Stage(UNLEARN, params | {"options": short | options}, (trunk.train, trunk.select))
            needs.append(stage)
    choice = Stage(CHOOSE, {"method": name, "grid": grid}, tuple(needs), cost=0.1)
    runs = {
        band: [
            Stage(
                UNLEARN,
                {"method": name, "forget": band, "seed": seed, "every": every, "options": fixed},
                (trunk.train, trunk.select, choice),
                cost=2.0,
            )
            for seed, trunk in enumerate(trunks)
        ]
        for band in BANDS
    }
    return choice, runs


def durations(
    store: Store, runs: list[Stage], trunks: list[SeedStages], band: str, metric: str
) -> list[Duration]:
    found = []
    for run, trunk in zip(runs, trunks, strict=True):
        oracle = np.mean([values(store.get(each), metric)[-1][1] for each in trunk.oracles[band]])
        steps, curve = zip(*values(store.get(run), metric), strict=True)
        found.append(time_to_unlearn(steps, curve, float(oracle)))
    return found


def results(store: Store, trunks: list[SeedStages], graph: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, (choice, runs) in graph.items():
        chosen = store.get(choice).document("choice")
        row: dict[str, Any] = {"options": METHODS[name][1] | chosen["options"], "tuning": chosen, "bands": {}}
        for band in BANDS:
            last = [{r.metric: r.value for r in measured(store.get(run))} for run in runs[band]]
            row["bands"][band] = {"end": {m: float(np.mean([each[m] for each in last])) for m in METRICS}}
            for metric in TIMED:
                found = durations(store, runs[band], trunks, band, metric)
                row["bands"][band][metric] = asdict(summarize(found)) | {"each": [asdict(d) for d in found]}
        table[name] = row
    oracle = {
        band: {
            metric: float(
                np.mean([values(store.get(o), metric)[-1][1] for t in trunks for o in t.oracles[band]])
            )
            for metric in METRICS
        }
        for band in BANDS
    }
    steps = values(store.get(trunks[0].oracles["lowest"][0]), "ua")[-1][0]
    return {"methods": table, "oracle": oracle, "retrain_steps": steps}


def told(summary: Mapping[str, Any]) -> str:
    bound = "≥ " if summary["reached"] < summary["seeds"] else ""
    median = "beyond" if summary["median"] is None else f"{summary['median']:.0f}"
    return f"{bound}{summary['mean']:.0f} ± {summary['sd']:.0f} | {median} | {summary['reached']}/{summary['seeds']}"


def order(row: Mapping[str, Any], metric: str) -> str:
    """Whether the hardest took longer; a censored time counts as longer than one that was reached at the same step."""
    easy, hard = (row["bands"][band][metric] for band in BANDS)
    keys = [(each["mean"], each["seeds"] - each["reached"]) for each in (easy, hard)]
    return "yes" if keys[1] > keys[0] else "the same" if keys[1] == keys[0] else "no"


def seeds_in_order(row: Mapping[str, Any], metric: str) -> str:
    """In how many seeds the hardest took longer."""
    pairs = zip(*(row["bands"][band][metric]["each"] for band in BANDS), strict=True)
    longer = [
        (hard["value"], not hard["reached"]) > (easy["value"], not easy["reached"]) for easy, hard in pairs
    ]
    return f"in {sum(longer)} of {len(longer)} seeds"


def time_table(found: Mapping[str, Any], metric: str) -> list[str]:
    lines = [
        "| method | easiest: mean ± sd | median | reached | hardest: mean ± sd | median | reached | hardest longer? |",
        "|---|---|---|---|---|---|---|---|",
        f"| `retrain` | {found['retrain_steps']} | | | {found['retrain_steps']} | | | by definition the same |",
    ]
    for name, row in found["methods"].items():
        cells = " | ".join(told(row["bands"][band][metric]) for band in BANDS)
        shown = f"**`{name}`**" if name in PAPER else f"`{name}`"
        lines.append(f"| {shown} | {cells} | {order(row, metric)}, {seeds_in_order(row, metric)} |")
    return lines


def end_table(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "| method | hyperparameters | MIA easiest | MIA hardest | UA hardest | test |",
        "|---|---|---|---|---|---|",
    ]

    def cells(of: Mapping[str, Mapping[str, float]]) -> str:
        easy, hard = (of[band] for band in BANDS)
        picked = (easy["mia"], hard["mia"], hard["ua"], (easy["test"] + hard["test"]) / 2)
        return " | ".join(f"{100 * value:.1f}" for value in picked)

    lines.append(f"| oracles | as in training | {cells(found['oracle'])} |")
    for name, row in found["methods"].items():
        options = ", ".join(f"{key} {value:g}" for key, value in row["options"].items())
        ends = {band: row["bands"][band]["end"] for band in BANDS}
        lines.append(f"| `{name}` | {options} | {cells(ends)} |")
    return lines


PAGE = """# How long each method takes

Steps until a metric stays within five points of the oracles' mean, on either side, for two evaluations: the 100
training examples with the lowest and the 100 with the highest privacy loss, three seeds. ≥: in some seed it was not
reached in the time given, so the mean is a lower bound; the median is Kaplan and Meier's, *beyond* when it lies beyond
that time. The paper's three methods are in bold; the others are reference points.

Read with care: a time of 0 means that the model was within five points of the oracles before the first step, as it
often is for the easiest, which it hardly memorised; then the question is only whether unlearning moves it away. A high
learning rate does. The spread over three seeds is large.

{verdict}

{times}## Where they end
In percent, mean over seeds, after the last step.

{ends}

## How it was made
scikit-learn's digits, `small_conv` of width {width}, {training.epochs} epochs, learning rate {training.learning_rate},
batch {training.batch_size}, weight decay {training.weight_decay}: the demo's setting, in which there is something to
forget. Two oracles a band and seed. Hyperparameters were chosen on a random forget set from the few below, by the rule
of `remanence tune` (in brackets the balance, 1 = as the oracles); what is not named is as in training.

{choices}

Where the best is the first or the last of its row, a better one may lie outside. The rates of `gradient_ascent` were
moved once, from 0.0001–0.001, where nothing happened; no other choice was made after looking. Three seeds, one small
data set and network: an order of means, not a law.

Command: `make bench-methods` (`benchmarks/methods.py`); {cost}, Python {python}, torch {torch}. Numbers:
`benchmarks/results/methods.json`.
"""


def page(found: Mapping[str, Any], workers: int) -> str:
    settings = DemoSettings.full()
    times = "".join(
        f"## By {words}\n" + "\n".join(time_table(found, metric)) + "\n\n" for metric, words in TIMED.items()
    )
    return PAGE.format(
        verdict=verdict(found),
        times=times,
        ends="\n".join(end_table(found)),
        width=settings.width,
        training=settings.training,
        choices="\n".join(f"- `{name}`: {choices(row['tuning'])}" for name, row in found["methods"].items()),
        cost=cost(found["run"], workers),
        python=platform.python_version(),
        torch=torch.__version__,
    )


def cost(run: Mapping[str, Any], workers: int) -> str:
    told = f"{run['seconds'] / 60:.0f} minutes with {workers} processes of one thread"
    return told + (f" ({run['reused']} of the stages were there from before)" if run["reused"] else "")


def verdict(found: Mapping[str, Any]) -> str:
    tested = [name for name in PAPER if name in found["methods"]]
    sentences = []
    for metric, words in TIMED.items():
        holds = [f"`{name}`" for name in tested if order(found["methods"][name], metric) == "yes"]
        sentences.append(
            f"By {words}, the hardest take longer than the easiest with {len(holds)} of the paper's "
            f"{len(tested)} methods" + (f" ({', '.join(holds)})." if 0 < len(holds) < len(tested) else ".")
        )
    return " ".join(sentences)


def choices(tuning: Mapping[str, Any]) -> str:
    tried = "; ".join(
        ", ".join(f"{key} {value:g}" for key, value in each["options"].items()) + f" ({each['balance']:.3f})"
        for each in tuning["table"]
    )
    return f"{tried}; before unlearning ({tuning['untouched']:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".bench/methods"), help="where stages are kept")
    parser.add_argument("--page", type=Path, default=Path("docs/results/methods.md"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/methods.json"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args()
    trunks = build_graph(DemoSettings.full()).seeds
    graph = {name: build(trunks, name) for name in given.methods}
    oracles = [oracle for trunk in trunks for band in BANDS for oracle in trunk.oracles[band]]
    goals = [*oracles, *(run for _, runs in graph.values() for each in runs.values() for run in each)]
    store, started, done = Store(given.work), time.perf_counter(), []
    store.sweep()

    def tell(stage: Stage) -> None:
        done.append(stage)
        print(f"{time.perf_counter() - started:6.0f} s  {len(done)} done: {stage.kind.name}", flush=True)

    tally = run_stages(goals, store, workers=given.workers, on_done=tell)
    seconds = time.perf_counter() - started
    found = results(store, trunks, graph)
    found["run"] = {
        "seconds": seconds,
        "computed": tally.computed,
        "reused": tally.reused,
        "work": dict(tally.seconds),
    }
    if (
        not tally.computed and given.out.exists()
    ):  # only the page is made anew: what it cost is what it cost then
        found["run"] = json.loads(given.out.read_text())["run"]
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    given.page.write_text(page(found, given.workers))
    print(given.page.read_text())


if __name__ == "__main__":
    main()
