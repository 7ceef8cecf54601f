"""Fine-tuning on the retain set."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from remanence.data import Split
from remanence.training import SINGLE_PROCESS, Ranks, Training
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class Finetune(Method):
    r"""Unlearn by continuing training on the retain set.

    Formula: :math:`w \leftarrow w - \eta\, \nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x)` with batches :math:`B`
    of the retain set :math:`D \setminus D_F` only.

    Args:
        recipe: hyperparameters of training; the paper fine-tunes for 25 epochs and tunes the learning rate on a random
            forget set.

    Source: Mohammadi Sepahvand, Thudi et al., "Leveraging Per-Instance Privacy for Machine Unlearning", ICML 2025.
    """

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)
