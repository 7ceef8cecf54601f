"""How many shadow models an attack needs: U-LiRA, BaVarIA and RMIA on a planted leak, with 2, 4, 8 and 16 of them.

    make bench-attacks

A hundred of 500 digits get wrong labels, so that only a model that was trained on them knows these. Every model is
trained on half of the hundred, in pairs with complementary halves, and then fine-tuned on the others for a few epochs,
which removes a part of what it knows. Targets are never among the shadows that attack them. Reported is the share of
members that are found with 5 % false alarms, and the area under the curve, over all targets and examples; the spread is
over disjoint or, where the pool is too small, random draws of shadows.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.audit import ShadowTable, evaluate
from remanence.audit.bavaria import predictives
from remanence.audit.rmia import relative_confidence
from remanence.audit.u_lira import likelihood_ratios
from remanence.data import Examples, Split, digits
from remanence.experiments.shadows import members
from remanence.models import mlp
from remanence.tasks import Recipe, Task, derive_seed
from remanence.training import Training, train_and_record
from remanence.types import ForgetSet
from remanence.unlearning import Finetune

PLANTED = 100
TARGETS, POOL = 16, 48
SIZES = (2, 4, 8, 16)
DRAWS = 12
FALSE_ALARMS = 0.05
TRAINING = Recipe(60, 0.2, 32, weight_decay=0.0)
UNLEARNING = Recipe(6, 0.2, 32, weight_decay=5e-3)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Models:
    """Signals of many models.

    Args:
        member: [models, planted] whether each was trained on the example.
        planted: [models, planted] log-odds of the (wrong) label after unlearning.
        test: [models, test] log-odds on the test set.
    """

    member: NDArray[np.bool_]
    planted: Floats
    test: Floats

    def rows(self, chosen: NDArray[np.int64]) -> Models:
        return Models(self.member[chosen], self.planted[chosen], self.test[chosen])


def planted_split() -> Split:
    train, test = digits()
    train = train.take(train.ids[:500])
    labels = train.labels.clone()
    labels[:PLANTED] = (labels[:PLANTED] + 1 + torch.arange(PLANTED) % 9) % 10
    wrong = Examples(train.ids, train.inputs, labels, train.class_names)
    return Split(wrong, test, ForgetSet("planted", train.ids[:PLANTED]))


def make_models(count: int) -> Models:
    split = planted_split()
    task = Task(lambda: mlp(64, (128,)), split.train, split.test, TRAINING)
    rows = []
    for index in range(count):
        inside, seed = members(split, index, seed=0), derive_seed(0, "attack", index)
        half = ForgetSet("half", split.forget.ids[inside])
        own = Split(split.train.without(split.forget.ids[~inside]), split.test, half)
        training = Training(task.new_model(seed), own.train, TRAINING, seed=seed)
        train_and_record(training)
        for _ in Finetune(UNLEARNING)(training.model, own, seed=seed):
            pass
        found = evaluate(training.model, split)
        rows.append((inside, found.forget.margin.numpy(), found.test.margin.numpy()))
    return Models(*(np.stack(parts) for parts in zip(*rows, strict=True)))


def bavaria(shadows: Models, target: Floats, test: Floats) -> Floats:
    inside, outside = predictives(shadows.member, shadows.planted)
    return inside.log_density(target) - outside.log_density(target)


def u_lira(shadows: Models, target: Floats, test: Floats) -> Floats:
    table = ShadowTable(np.arange(PLANTED), shadows.member, shadows.planted)
    return likelihood_ratios(table, target)


def rmia(shadows: Models, target: Floats, test: Floats) -> Floats:
    """The references of an example are the shadows that were not trained on it."""

    def confidence(log_odds: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-log_odds)))

    outside = np.ma.masked_array(confidence(shadows.planted), shadows.member).mean(axis=0).data[None]
    return relative_confidence(confidence(target), outside)  # its rank is that of RMIA's score


ATTACKS = {"U-LiRA": u_lira, "BaVarIA": bavaria, "RMIA": rmia}


def power(scores: Floats, member: NDArray[np.bool_]) -> tuple[float, float]:
    """Share of members found with 5 % false alarms, and the area under the curve."""
    inside, outside = scores[member], np.sort(scores[~member])
    threshold = np.quantile(outside, 1 - FALSE_ALARMS, method="higher")
    ranks = (np.searchsorted(outside, inside, "left") + np.searchsorted(outside, inside, "right")) / 2
    return float((inside > threshold).mean()), float(ranks.mean() / len(outside))


def measure(models: Models) -> list[dict[str, object]]:
    targets, draw, rows = models.rows(np.arange(TARGETS)), np.random.default_rng(0), []
    for size in SIZES:
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in ATTACKS}
        for _ in range(DRAWS):
            pairs = draw.choice(np.arange(TARGETS // 2, (TARGETS + POOL) // 2), size // 2, replace=False)
            shadows = models.rows(np.sort(np.concatenate([2 * pairs, 2 * pairs + 1])))
            for name, attack in ATTACKS.items():
                if name == "U-LiRA" and size < 4:
                    continue  # needs two shadows of each kind
                scores = np.stack(
                    [attack(shadows, targets.planted[i], targets.test[i]) for i in range(TARGETS)]
                )
                results[name].append(power(scores, targets.member))
        for name, values in results.items():
            if values:
                mean, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
                rows.append(
                    {
                        "attack": name,
                        "shadows": size,
                        "found": mean[0],
                        "found_sd": spread[0],
                        "area": mean[1],
                        "area_sd": spread[1],
                    }
                )
    return rows


def table(rows: list[dict[str, object]]) -> str:
    lines = [
        "| attack | " + " | ".join(f"{size} shadows" for size in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
    ]
    for name in ATTACKS:
        cells = []
        for size in SIZES:
            row = next((row for row in rows if (row["attack"], row["shadows"]) == (name, size)), None)
            cells.append(
                "none: needs 4"
                if row is None
                else f"{row['found']:.2f} ± {row['found_sd']:.2f} (area {row['area']:.3f})"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    models = make_models(TARGETS + POOL)
    known = (models.planted > 0)[models.member].mean(), (models.planted > 0)[~models.member].mean()
    rows = measure(models)
    document = {"accuracy_of_members": known[0], "accuracy_of_others": known[1], "rows": rows}
    (options.out / "attacks.json").write_text(json.dumps(document, indent=2) + "\n")
    print(
        f"After unlearning, models know {known[0]:.0%} of the wrong labels they had, {known[1]:.0%} of others."
    )
    print(table(rows))


if __name__ == "__main__":
    main()
