"""Training towards the outputs of models that never saw the examples to forget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from remanence.batches import Batch
from remanence.data import Examples, Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, BatchStream, Ranks, Recipe, Term, Training, mean_loss
from remanence.types import Ids, check_positive
from remanence.unlearning.distillation import output_distance
from remanence.unlearning.fold_targets import read_fold_targets
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class OutOfFold(Method):
    r"""Unlearn by training towards what models that never saw the examples to forget say about them.

    Formula: each step descends :math:`\frac{1}{|B|}\sum_{x \in B} \ell(w, x) + \omega\, \frac{1}{|B_F|}
    \sum_{x \in B_F} \mathrm{KL}(q_x \,\Vert\, p(x; w))` with a batch :math:`B` of the retain set and a batch
    :math:`B_F` of the forget set; :math:`q_x` is the output of a fold model that was trained without :math:`x`. If
    there are several, it is the one whose training data resemble most what stays (see `FoldTargets.of`). A forget set
    that is smaller than a batch has a smaller weight, in proportion.

    Args:
        recipe: hyperparameters of training; an epoch is a pass over the retain set. The learning rate is that of
            training.
        targets: a folder with the outputs of the fold models: a calibration, or written by `FoldTargets.write`.
        weight: weight ω of the forget set.

    Source: ours. Cross-fitting (out-of-fold predictions) is an old device of statistics; distillation from a model
    trained on other data is in Chundawat et al., "Can Bad Teaching Induce Forgetting?", AAAI 2023.

    For examples of middle difficulty it needs a small part of the steps of fine-tuning. It must not be used for hard
    examples: there it only changes the outputs, and what it hid comes back after some epochs on retained data. Where
    the outputs are not classes, the distance is half the squared distance.
    """

    targets: str = ""
    weight: float = 1.0

    EPOCHS: ClassVar[int] = 5
    LEARNING_RATE: ClassVar = None
    SEARCH: ClassVar[Mapping[str, tuple[float, float]]] = {"learning_rate": (1e-3, 0.5), "weight": (0.1, 3.0)}

    def __post_init__(self) -> None:
        check_positive("weight", self.weight)
        if not self.targets:
            raise InputError(
                "out_of_fold needs `targets`: a folder with the outputs of models that never saw the examples to "
                "forget."
            )

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        retain = BatchStream(split.retain, self.recipe, seed)
        forget = toward_folds(split.forget, self.recipe, seed, self.targets, self.weight)
        objective = replace(mean_loss(retain), terms=lambda step: [Term(retain, step), forget(step)])
        return Training(model, split.train, self.recipe, seed=seed, ranks=ranks, objective=objective)


def toward_folds(
    examples: Examples, recipe: Recipe, seed: int, targets: str, weight: float, removed: Ids | None = None
) -> Callable[[int], Term]:
    """The term of a step that draws examples to forget towards the outputs of the fold models.

    Fewer examples than a batch weigh less, in proportion: a single one must not count as much as a batch of others.

    Args:
        examples: the examples.
        recipe: batch size and sampling.
        seed: random seed of the batches.
        targets: the folder with the outputs of the fold models.
        weight: weight of the term.
        removed: ids of all examples that are forgotten; these examples by default.
    """
    outputs = read_fold_targets(Path(targets)).of(examples, removed)
    classes = examples.has_classes

    def distance(predicted: Any, inputs: Batch, target: Batch) -> Tensor:
        return output_distance(predicted, target, classes=classes)

    forget = BatchStream(examples, recipe, seed, "-forget")
    share = min(1.0, len(examples) / recipe.batch_size)
    return lambda step: Term(forget, step, share * weight, distance, outputs)
