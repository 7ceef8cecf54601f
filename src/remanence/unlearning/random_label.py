"""Training with wrong labels on the forget set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from remanence.data import Examples, Split
from remanence.errors import DataError
from remanence.tasks.randomness import generator
from remanence.training import SINGLE_PROCESS, Ranks, Training
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class RandomLabel(Method):
    r"""Unlearn by learning wrong labels of the forget set.

    Formula: plain training on :math:`D \setminus D_F` and :math:`\{(x, \tilde y) : (x, y) \in D_F\}`, where
    :math:`\tilde y` is drawn once, uniformly from the other classes.

    Args:
        recipe: hyperparameters of training; an epoch is a pass over all training data.

    Source: Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020 (a baseline there); Graves et al.,
    "Amnesiac Machine Learning", AAAI 2021.

    Departs: the true class is never drawn, and the wrong labels stay the same throughout. Where the labels are not
    classes, each example gets the label of another example of the training set.
    """

    EPOCHS: ClassVar[int] = 10

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        return Training(model, relabel(split, seed), self.recipe, seed=seed, ranks=ranks)


def relabel(split: Split, seed: int) -> Examples:
    """A copy of the training data in which each example to forget has another, random class."""
    train, classes = split.train, len(split.train.class_names)
    if classes == 1:
        raise DataError("Wrong labels need at least two classes; the data have one.")
    rows = torch.from_numpy(train.positions(split.forget_set.ids))
    random = generator(seed, "labels")
    labels = train.labels.clone()
    if classes:
        shift = torch.randint(1, classes, (len(rows),), generator=random)
        labels[rows] = (labels[rows] + shift) % classes
    else:
        others = torch.randint(1, len(train), (len(rows),), generator=random)
        labels[rows] = train.labels[(rows + others) % len(train)]
    return train.with_labels(labels)
