"""The gradient of the loss over a set of examples."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from remanence.batches import call, device_of, moved, size_of
from remanence.data import Examples
from remanence.errors import NumericalError
from remanence.gradients.evaluation_mode import evaluating

_BATCH = 256


def set_gradient(model: nn.Module, examples: Examples) -> dict[str, Tensor]:
    """The gradient of the mean loss of some examples with respect to each parameter, in evaluation mode.

    Every process computes all of it: sums over processes round differently, which could change what is chosen by it.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    total = [torch.zeros_like(parameter) for parameter in parameters.values()]
    device = device_of(model)
    with evaluating(model):
        for batch in examples.batches(_BATCH):
            inputs, labels = moved(batch, device)
            loss = examples.readout.losses(call(model, inputs), labels, size_of(labels)).sum()
            if not torch.isfinite(loss):
                raise NumericalError(
                    f"The loss became {loss.item()} on the examples to score the weights by, before the first step "
                    f"(first ids: {examples.ids[:5].tolist()})."
                )
            gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
            torch._foreach_add_(total, gradients)
    torch._foreach_div_(total, len(examples))
    return dict(zip(parameters, total, strict=True))


def largest(scores: Tensor, fraction: float) -> Tensor:
    """Positions of the largest scores, a fraction of all and at least one; ties go to the first."""
    return scores.sort(descending=True, stable=True).indices[: max(1, round(fraction * len(scores)))]


def largest_overall(scores: dict[str, Tensor], fraction: float) -> dict[str, Tensor]:
    """Masks of the largest scores over all tensors together; ties go to the first."""
    flat = torch.cat([values.flatten() for values in scores.values()])
    chosen = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
    chosen[largest(flat, fraction)] = True
    parts = torch.split(chosen, [values.numel() for values in scores.values()])
    return {name: mask.view_as(values) for (name, values), mask in zip(scores.items(), parts, strict=True)}
