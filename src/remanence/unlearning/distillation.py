"""The distance of a model's outputs from given ones."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from remanence.losses import logits_of


def output_distance(outputs: Any, target: Any, *, classes: bool, temperature: float = 1.0) -> Tensor:
    r"""One distance per example: :math:`\tau^2\, \mathrm{KL}(p_\tau(target) \,\Vert\, p_\tau(outputs))`.

    Args:
        outputs: outputs of the model.
        target: the outputs to come close to.
        classes: whether they are logits of classes; otherwise the distance is half the squared distance.
        temperature: temperature τ of the softmax.
    """
    student, teacher = logits_of(outputs), logits_of(target)
    if not classes:
        difference = student.reshape(len(student), -1) - teacher.reshape(len(teacher), -1)
        return 0.5 * difference.square().sum(dim=1)
    divergence = F.kl_div(
        F.log_softmax(student / temperature, dim=1),
        F.log_softmax(teacher / temperature, dim=1),
        reduction="none",
        log_target=True,
    )
    return temperature**2 * divergence.sum(dim=1)
