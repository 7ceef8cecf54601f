"""Fine-tuning on the retain set: go on training without the examples to forget."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from remanence.data import Split
from remanence.training import ALONE, Ranks, Training
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class Finetune(Method):
    r"""Unlearn by training on.

    Formula: :math:`w \leftarrow w - \eta\, \nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x)` with batches :math:`B`
    of the retain set :math:`D \setminus D_F` only.

    Args:
        recipe: the learning rate above all; the paper fine-tunes for 25 epochs and tunes it on a random forget set.

    Source: Mohammadi Sepahvand, Thudi et al., "Leveraging Per-Instance Privacy for Machine Unlearning", ICML 2025.
    """

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Plain training on the retain set."""
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)
