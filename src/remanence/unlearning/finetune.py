"""Fine-tuning on the retain set: go on training without the examples to forget."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from remanence.data import Split
from remanence.training import Recipe, train_steps
from remanence.unlearning.contract import Method


def finetune(recipe: Recipe) -> Method:
    r"""Unlearn by training on.

    Formula: :math:`w \leftarrow w - \eta\, \nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x)` with batches :math:`B`
    of the retain set :math:`D \setminus D_F` only. With ``recipe.noise > 0`` this is noisy fine-tuning (SGLD).

    Hyperparameters: the recipe's learning rate above all; the paper fine-tunes for 25 epochs.

    Source: Sepahvand, Thudi et al., ICML 2025, section 5.1.
    """

    def unlearn(model: nn.Module, split: Split, *, seed: int) -> Iterator[int]:
        return train_steps(model, split.retain, recipe, seed=seed)

    return unlearn
