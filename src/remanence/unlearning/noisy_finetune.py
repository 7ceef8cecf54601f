"""Fine-tuning on the retain set with Gaussian noise (SGLD)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import SINGLE_PROCESS, Ranks, Recipe, Training
from remanence.unlearning.method import Method


@dataclass(frozen=True)
class NoisyFinetune(Method):
    r"""Unlearn by fine-tuning with Gaussian noise, as the theory assumes.

    Formula: :math:`w \leftarrow w - \eta\,(\nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x) + \sigma\xi)`,
    :math:`\xi \sim N(0, I)`, with batches :math:`B` of the retain set only; projected onto a ball if
    `recipe.radius` is given.

    Args:
        recipe: hyperparameters of training. Its `noise` is σ, by default that of training, or 0.01 if training had
            none; with `langevin`, the noise on the weights is √(2η) σ ξ instead.

    Source: Chien et al., "Langevin Unlearning", NeurIPS 2024; the noise is on the scale of the mini-batch gradient, as
    in Mohammadi Sepahvand, Thudi et al., ICML 2025.

    Departs: no clipping, as in the latter. It gives no certificate; `remanence certify` does.
    """

    NOISE: ClassVar[float] = 0.01

    def __post_init__(self) -> None:
        if not self.recipe.noise > 0:
            raise InputError(
                f"noisy_finetune needs `noise` above 0; got {self.recipe.noise}. Use finetune for no noise."
            )

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = SINGLE_PROCESS) -> Training:
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)

    @classmethod
    def default_recipe(cls, training: Recipe) -> Recipe:
        """The recipe of fine-tuning, with the noise of training, or a little if it had none."""
        noise, langevin = training.noise or cls.NOISE, training.langevin
        return replace(super().default_recipe(training), noise=noise, langevin=langevin)
