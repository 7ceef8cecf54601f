"""Does one example's loss depend on the others? Where it does, per-example gradients do not exist."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, cloned, single, size_of, tensors_of
from remanence.errors import InputError
from remanence.gradients.example_loop import dense
from remanence.gradients.layers.normalization import COUPLED_BATCH_NORM
from remanence.losses import ExampleLoss, example_losses

GRADIENT_NOISE = 100
"""Rounding errors, in units of the machine epsilon, up to which gradients of a fitted example count as equal."""


def refuse_batch_statistics(model: nn.Module) -> None:
    """Raise for BatchNorm that uses the batch's statistics, before anything runs."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (
            module.training or module.running_mean is None
        ):
            raise InputError(COUPLED_BATCH_NORM.format(where=f"`{name or type(module).__name__}`"))


def refuse_coupled(
    model: nn.Module, inputs: Batch, targets: Batch, loss: ExampleLoss, i: int, tolerance: float
) -> None:
    """Raise, naming the culprit, if example i's loss or gradient is not the same in a batch as alone."""
    n = size_of(inputs)
    with torch.enable_grad():
        together, whole = _outputs(model, cloned(inputs))
        losses = example_losses(loss, together, cloned(targets), n)
        alone, lone = _outputs(model, single(inputs, i))
        own = example_losses(loss, alone, single(targets, i), 1)
    culprit = next((name for name in whole if _differ(whole[name], lone.get(name), i, n, tolerance)), None)
    if culprit is None:
        same_loss = torch.allclose(
            losses[i].detach(), own[0].detach(), rtol=tolerance, atol=tolerance, equal_nan=True
        )
        same_gradient = _same_gradient(model, losses[i], own[0], tolerance)
        if same_loss and same_gradient:
            return
        culprit = "the loss"
    raise InputError(
        f"Each example's loss must depend on that example alone; {culprit} mixes the examples of a batch. "
        "Per-example gradients do not exist there: make it work example by example."
    )


def _same_gradient(model: nn.Module, in_batch: Tensor, alone: Tensor, tolerance: float) -> bool:
    parameters = [p for p in model.parameters() if p.requires_grad]
    pair = [torch.autograd.grad(value, parameters, allow_unused=True) for value in (in_batch, alone)]
    gap, scale = 0.0, 0.0
    for a, b in zip(*pair, strict=True):
        if a is None and b is None:
            continue
        left = dense(a) if a is not None else torch.zeros_like(dense(b))
        right = dense(b) if b is not None else torch.zeros_like(left)
        gap += float((left - right).cpu().double().square().sum())
        scale += float(right.cpu().double().square().sum())
    if not math.isfinite(scale):
        return True  # reported elsewhere, with the example's id
    noise = GRADIENT_NOISE * torch.finfo(parameters[0].dtype).eps
    return bool(gap**0.5 <= tolerance * scale**0.5 + noise)


def _outputs(model: nn.Module, inputs: Batch) -> tuple[Any, dict[str, Tensor]]:
    """The model's output and the first tensor that each module returned."""
    seen: dict[str, Tensor] = {}
    with _hooked(model, seen):
        return call(model, inputs), seen


@contextmanager
def _hooked(model: nn.Module, seen: dict[str, Tensor]) -> Iterator[None]:
    def keep(name: str, output: Any) -> None:
        tensors = tensors_of(output)
        if tensors and name not in seen:
            seen[name] = tensors[0].detach().clone()

    handles = [
        module.register_forward_hook(lambda m, a, out, name=name: keep(name, out))
        for name, module in model.named_modules()
        if name
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _differ(whole: Tensor, lone: Tensor | None, i: int, n: int, tolerance: float) -> bool:
    """Whether a module's output for example i changes with the rest of the batch, NaN and infinity included."""
    if lone is None or whole.dim() == 0 or lone.dim() == 0 or whole.shape != (n, *lone.shape[1:]):
        return False
    a, b = whole[i].cpu().double(), lone[0].cpu().double()
    gap = (a - b).masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0)
    size = b.nan_to_num(0.0, 0.0, 0.0).norm().clamp_min(1e-30)
    return not bool(gap.norm() <= tolerance * size)
