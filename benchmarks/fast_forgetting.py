"""How fast is each method on examples of chosen difficulty, does it stay forgotten, and does `auto` choose well?

    make bench-fast-forgetting

Joint time: the first step at which the error on the forget set (UA) and the membership attack (MIA) are within five
points of the oracles' mean and test accuracy is at most one point below theirs, at two evaluations in a row. A run that
never gets there is censored. The model that is handed over, at the second of these evaluations or at the end of the
budget, is fine-tuned on retained data for three epochs: what comes back was not forgotten. Every finished piece is a
line of a file in the work folder; an interrupted benchmark continues from there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fast_forgetting_page import write_page
from fast_forgetting_settings import METRICS, ORACLES, SETTINGS, Setting, is_joint
from torch import nn

from remanence.data import Split
from remanence.experiments import (
    Evaluations,
    Relearning,
    UnlearnSettings,
    measure,
    oracle_seed,
    unlearn_and_measure,
    unlearn_run,
)
from remanence.forgetting import hardest
from remanence.memory import keep_freed_memory
from remanence.requests import CalibrationSettings, calibrate, read_calibration
from remanence.requests.calibration import FOLDER as CALIBRATION
from remanence.scores import score_table
from remanence.storage import SEAL
from remanence.tasks import Recipe, derive_seed
from remanence.training import Run, RunSettings, open_run, train_run
from remanence.types import ForgetSet, Measurement, Scores
from remanence.unlearning import make_method


class Lines:
    """Results in a file, one line per result, found again by their key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def once(self, key: Mapping[str, Any], compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The result with this key, computed if it is not there yet."""
        for row in self.rows:
            if all(row.get(name) == value for name, value in key.items()):
                return row
        row = dict(key) | dict(compute())
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        print(" ".join(map(str, key.values())), row.get("joint", ""), flush=True)
        return row


def forget_sets(scores: Scores, size: int, seed: int) -> dict[str, ForgetSet]:
    """The hardest, those around the upper quartile, and half of the hardest with as many of the easier half."""
    order = np.lexsort((np.arange(len(scores.ids)), scores.values))
    start = round(0.75 * len(order)) - size // 2
    hard = hardest(scores, size)
    rng = np.random.default_rng(seed)
    easy = rng.choice(scores.ids[order[: len(order) // 2]], size // 2, replace=False)
    mixed = np.concatenate([rng.choice(hard.ids, size // 2, replace=False), easy])
    middle = scores.ids[order[start : start + size]]
    return {
        "hardest": hard,
        "upper quartile": ForgetSet("upper quartile", np.sort(middle)),
        "mixture": ForgetSet("mixture", np.sort(mixed)),
    }


def evaluation_steps(per_epoch: int, budget: int) -> set[int]:
    """Densely at first, then every epoch."""
    dense = max(1, per_epoch // 4)
    early = (*range(0, 6 * dense + 1, dense), *range(8 * dense, 12 * dense + 1, 2 * dense))
    return {*early, *range(4 * per_epoch, budget + 1, per_epoch)}


def values_of(model: nn.Module, split: Split) -> dict[str, float]:
    return {row.metric: row.value for row in measure(model, split, METRICS, step=0, seed=0)}


def mean_of(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in METRICS}


def by_step(rows: Sequence[Measurement]) -> dict[int, dict[str, float]]:
    steps: dict[int, dict[str, float]] = {}
    for row in rows:
        steps.setdefault(row.step, {})[row.metric] = row.value
    return steps


def joint_time(rows: Sequence[Measurement], goal: Mapping[str, float]) -> int | None:
    steps = by_step(rows)
    taken = sorted(steps)
    close = [is_joint(steps[step], goal) for step in taken]
    both = (step for step, now, then in zip(taken, close, close[1:], strict=False) if now and then)
    return next(both, None)


def relearned(model: nn.Module, split: Split, recipe: Recipe, seed: int) -> dict[str, float]:
    """The best accuracy and log-odds on the forget set in three epochs on retained data, at two learning rates."""
    recoveries = Relearning(seed=seed)(model, split, recipe).on_retain
    accuracy = max(value for recovery in recoveries for value in recovery.accuracy[1:])
    log_odds = max(value for recovery in recoveries for value in recovery.log_odds[1:])
    return {"relearned": accuracy, "relearned_log_odds": log_odds}


def cut_data(settings: RunSettings, sizes: tuple[int, int], folder: Path) -> RunSettings:
    """The settings with a part of a pack of pictures, drawn once and kept in a folder."""
    path = folder / "data.npz"
    if not path.exists():
        rng, pack = np.random.default_rng(0), dict(np.load(settings.data))
        for part, size in zip(("train", "test"), sizes, strict=True):
            rows = np.sort(rng.choice(len(pack[f"y_{part}"]), size, replace=False))
            pack |= {f"{name}_{part}": pack[f"{name}_{part}"][rows] for name in ("x", "y", "idx")}
        np.savez(path, **pack)
    return replace(settings, data=str(path))


def calibrated(run: Run, seed: int, budget: int, models: int) -> str:
    """The run's calibration with `auto`, made unless it is there: the losses that part examples, and fold targets."""
    path = run.folder.path / CALIBRATION
    if not (path / SEAL).exists():
        settings = CalibrationSettings(method="auto", models=models, budget=budget, seed=seed)
        calibrate(run, settings, workers=1, on_done=lambda stage: print(stage.kind, flush=True))
    return str(path)


class Trial:
    """One seed of a setting: its model, its forget sets and their oracles."""

    def __init__(self, setting: Setting, seed: int, work: Path) -> None:
        self.setting, self.seed, self.work = setting, seed, work
        settings = setting.run if setting.cut is None else cut_data(setting.run, setting.cut, work)
        train_run(replace(settings, seed=seed), work / f"run-{seed}", resume=True)
        self.run = open_run(work / f"run-{seed}")
        scores = score_table(self.run.trace(), ["privacy_loss"]).column("privacy_loss")
        self.sets = forget_sets(scores, setting.size, seed)

    def oracle(self, name: str, index: int) -> nn.Module:
        folder = self.work / f"oracle-{self.seed}-{name.replace(' ', '-')}-{index}"
        how = UnlearnSettings("retrain", seed=oracle_seed(self.seed, index))
        return unlearn_run(self.run, self.sets[name], how, folder, resume=True).model()

    def compare(self, lines: Lines, name: str, methods: Sequence[str]) -> None:
        """Some methods on one forget set."""
        split = self.run.split(self.sets[name])
        key = {"seed": self.seed, "set": name}
        oracles = [
            lines.once(key | {"oracle": index}, lambda index=index: self._oracle_row(name, index, split))
            for index in range(ORACLES)
        ]
        goal = mean_of([row["end"] for row in oracles[:-1]])
        for row in methods:
            lines.once(key | {"method": row}, lambda row=row: self._unlearn(row, split, goal))

    def _oracle_row(self, name: str, index: int, split: Split) -> dict[str, Any]:
        model = self.oracle(name, index)
        end = values_of(model, split)
        return {"end": end} | relearned(model, split, self.run.settings.recipe, self.seed)

    def _unlearn(self, row: str, split: Split, goal: Mapping[str, float]) -> dict[str, Any]:
        name, options = self.setting.methods[row]
        if name in ("out_of_fold", "routed"):
            options = dict(options) | {
                "targets": calibrated(self.run, self.seed, self.setting.budget, self.setting.models)
            }
        if name == "routed":
            options |= read_calibration(self.run).settings.options
        recipe = self.run.settings.recipe
        per_epoch = recipe.steps_per_epoch(len(split.retain))
        budget = recipe.total_steps(len(split.retain)) if row in self.setting.long else self.setting.budget
        length = {} if name == "retrain" else {"epochs": -(-budget // per_epoch)}
        training = make_method(name, length | dict(options), recipe).begin(
            self.run.model(), split, seed=derive_seed(self.seed, "benchmark")
        )
        steps = min(budget, training.total_steps)
        evaluations = Evaluations(split, METRICS, evaluation_steps(per_epoch, steps) | {steps}, self.seed)
        trajectory = unlearn_and_measure(
            training, evaluations, steps=steps, until=lambda rows: joint_time(rows, goal) is not None
        )
        curve = by_step(trajectory.rows)
        after = [values for step, values in curve.items() if step]
        return {
            "joint": joint_time(trajectory.rows, goal),
            "last": trajectory.last_step,
            "goal": goal,
            "end": curve[trajectory.last_step],
            "lowest_retain": min((values["ra"] for values in after), default=None),
            "curve": [[step, *(round(values[key], 4) for key in METRICS)] for step, values in curve.items()],
        } | (relearned(training.model, split, recipe, self.seed) if trajectory.diverged is None else {})


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All results of a setting, computed where they are missing."""
    setting, work = SETTINGS[options.setting], options.work / options.setting
    work.mkdir(parents=True, exist_ok=True)
    lines = Lines(work / "results.jsonl")
    for seed in options.seeds or setting.seeds:
        trial = Trial(setting, seed, work)
        for name in setting.sets:
            trial.compare(lines, name, options.methods or list(setting.methods))
    return lines.rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setting", choices=SETTINGS, default="digits-auto")
    parser.add_argument("--work", type=Path, default=Path(".bench/fast-forgetting"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, nargs="*", help="instead of those of the setting")
    parser.add_argument("--methods", nargs="*", help="only these rows; the others can be added later")
    parser.add_argument("--page", type=Path, default=Path("docs/results/fast-forgetting.md"))
    parser.add_argument("--only-page", action="store_true", help="write the page from what is there")
    options = parser.parse_args()
    keep_freed_memory()  # as the command does
    if not options.only_page:
        rows = compare(options)
        numbers = options.out / f"fast_forgetting_{options.setting}.json"
        numbers.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    write_page(options.page, options.out)


if __name__ == "__main__":
    main()
