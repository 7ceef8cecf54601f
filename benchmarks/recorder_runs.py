"""Training runs that are recorded as densely as possible: the reference of `recorder.py`.

From every training step, the errors of its examples (the free signal) and, without BatchNorm, their norms in flight.
After every epoch, the gradient norm and the error of every example in evaluation mode; networks that are recorded in
flight have these rows with the first seed only, and otherwise only before and after training. One file per network and
seed; finished files are not made again.

    python benchmarks/recorder_runs.py --work .bench/recorder
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.data import load_dataset
from remanence.gradients import norms_in_flight
from remanence.models import resnet18, vit_small
from remanence.tasks.recipe import couples_examples
from remanence.training import Recipe, Training
from remanence.training.example_statistics import confidence_and_error, example_statistics

SHARED = Path(__file__).parents[2] / "shared" / "data"
EPOCHS, EXAMPLES = 150, 2000
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """A network, the data that it learns, and how."""

    title: str
    data: str
    model: Callable[[], nn.Module]
    recipe: Recipe


def _convolutional(epochs: int) -> Recipe:
    return Recipe(epochs, 0.02, 32, schedule="cosine", channels_last=True)


CASES = {
    "batch-norm": Case(
        "ResNet-18 w8, BatchNorm, CIFAR-10", "cifar10", lambda: resnet18(8), _convolutional(EPOCHS)
    ),
    "group-norm": Case(
        "ResNet-18 w8, GroupNorm, Fashion-MNIST",
        "fashion_mnist",
        lambda: resnet18(8, "group", in_channels=1),
        _convolutional(EPOCHS),
    ),
    "transformer": Case(
        "Transformer (depth 2, width 96, patch 8), SVHN",
        "svhn",
        lambda: vit_small(2, dim=96, heads=3, patch=8),
        Recipe(
            epochs=EPOCHS,
            learning_rate=1e-3,
            batch_size=32,
            optimizer="adamw",
            schedule="cosine",
            warmup=0.05,
        ),
    ),
}


def start(case: Case, seed: int, examples: int) -> Training:
    """The training before its first step."""
    train, _ = load_dataset(SHARED / f"{case.data}_12k.npz")
    torch.manual_seed(seed)
    return Training(case.model(), train.take(train.ids[:examples]), case.recipe, seed=seed)


def record_all(training: Training, evaluate: bool = True) -> dict[str, np.ndarray]:
    """Train, and return everything that could be recorded, one row per epoch.

    Args:
        training: the training before its first step.
        evaluate: also record in evaluation mode after every epoch; always with BatchNorm.
    """
    model, examples = training.model, training.examples
    rows = [example_statistics(model, examples)]
    shape = (training.recipe.epochs, len(examples))
    moments = np.zeros(shape, np.int64)
    free, flight = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    in_flight = not couples_examples(model.modules())
    steps = training.steps()
    for step in range(training.total_steps):
        epoch = step // training.steps_per_epoch
        (term,) = training.objective.terms(step)
        columns = term.stream.rows(term.index).numpy()
        outputs: list[Tensor] = []
        hook = model.register_forward_hook(lambda _m, _i, out, outputs=outputs: outputs.append(out))
        if in_flight:
            with norms_in_flight(model) as norms:
                next(steps)
            flight[epoch, columns] = norms.values.numpy()
        else:
            next(steps)
        hook.remove()
        labels = examples.labels[columns]
        free[epoch, columns] = confidence_and_error(examples.readout, outputs[0].detach(), labels)[1].numpy()
        moments[epoch, columns] = step
        ends = (step + 1) % training.steps_per_epoch == 0 and (evaluate or not in_flight)
        if ends or step + 1 == training.total_steps:
            rows.append(example_statistics(model, examples))
    tables = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return {**tables, "free": free, "moments": moments, **({"flight": flight} if in_flight else {})}


def run_path(work: Path, name: str, seed: int, examples: int) -> Path:
    return work / f"{name}-{examples}-{seed}.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rm.keep_freed_memory()
    arguments.work.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        for name in arguments.cases:
            case, path = CASES[name], run_path(arguments.work, name, seed, arguments.examples)
            if path.exists():
                continue
            started = time.perf_counter()
            tables = record_all(start(case, seed, arguments.examples), evaluate=seed == SEEDS[0])
            partial = path.with_suffix(".partial.npz")
            np.savez_compressed(partial, **tables)
            partial.rename(path)
            print(f"{path.name}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
