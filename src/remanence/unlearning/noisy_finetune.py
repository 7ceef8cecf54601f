"""Fine-tuning with noise: go on with SGLD without the examples to forget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from remanence.data import Split
from remanence.errors import InputError
from remanence.training import ALONE, Ranks, Recipe, Training
from remanence.unlearning.contract import Method


@dataclass(frozen=True)
class NoisyFinetune(Method):
    r"""Unlearn by training on with Gaussian noise, the setting of the theory.

    Formula: :math:`w \leftarrow w - \eta\,(\nabla \frac{1}{|B|}\sum_{x \in B} \ell(w, x) + \sigma\xi)`,
    :math:`\xi \sim N(0, I)`, with batches :math:`B` of the retain set only; projected onto a ball if
    `recipe.radius` is given.

    Args:
        recipe: its `noise` is σ, by default that of training, or 0.01 where training had none; with
            `recipe.langevin` the noise on the weights is √(2η) σ ξ instead.

    Source: Chien et al., "Langevin Unlearning", NeurIPS 2024; the noise's scale, on the mini-batch gradient, as in
    Mohammadi Sepahvand, Thudi et al., ICML 2025.

    Departs: no clipping, as in the latter; a certificate for it is another matter (`remanence certify`).
    """

    NOISE: ClassVar[float] = 0.01

    def __post_init__(self) -> None:
        if not self.recipe.noise > 0:
            raise InputError(
                f"noisy_finetune needs `noise` above 0; got {self.recipe.noise}. Without noise it is finetune."
            )

    def begin(self, model: nn.Module, split: Split, *, seed: int, ranks: Ranks = ALONE) -> Training:
        """Noisy training on the retain set."""
        return Training(model, split.retain, self.recipe, seed=seed, ranks=ranks)

    @classmethod
    def usual_recipe(cls, training: Recipe) -> Recipe:
        """The noise that training had, or a little."""
        noise, langevin = training.noise or cls.NOISE, training.langevin
        return replace(super().usual_recipe(training), noise=noise, langevin=langevin)
