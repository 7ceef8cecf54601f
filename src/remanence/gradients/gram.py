"""Inner products between the gradients of a small set of examples."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from remanence.gradients.batches import Batch, as_targets, call, check_targets, placed, single, size_of
from remanence.gradients.engine import Engine
from remanence.gradients.ledger import Ledger
from remanence.gradients.losses import ExampleLoss, example_losses
from remanence.gradients.norms import evaluating, prepare, refuse_infinite, wide
from remanence.gradients.reference import gradients_of
from remanence.gradients.use import Use

BLOCK_BYTES = 128 << 20
"""Materialised gradients at a time, two such blocks at once."""


def example_gradients_gram(
    model: nn.Module,
    inputs: Batch,
    targets: Batch,
    *,
    loss: str | ExampleLoss = "cross_entropy",
    parameters: Iterable[str | Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The matrix of inner products ⟨∇ℓᵢ, ∇ℓⱼ⟩ of all examples, [n, n], in evaluation mode.

    All examples go through the model in one batch, so the set should be small (a few hundred). The diagonal
    holds the squared norms of `example_gradient_norms`; the sum of all entries is the squared norm of the
    examples' summed gradient.
    """
    engine = prepare(model, loss, parameters, dtype, by_parameter=False)
    n = size_of(inputs)
    targets = as_targets(targets)
    check_targets(targets, n)
    with evaluating(engine.model):
        inputs, targets = (placed(part, engine.model, wide(dtype)) for part in (inputs, targets))
        norms = engine.squared_norms(inputs, targets)
        refuse_infinite(norms, range(n))
        gram = (
            _looped(engine, inputs, targets, n) if engine.looped or n == 1 else _fast(engine, inputs, targets)
        )
    return gram.to(torch.float64 if engine.dtype == torch.float64 else torch.float32)


class GramLedger(Ledger):
    """Holds every use and multiplies examples with examples instead of squaring."""

    def __init__(self, engine: Engine, n: int) -> None:
        super().__init__(engine.names, n, engine.device)
        self.gram = torch.zeros(n, n, dtype=self.kind, device=engine.device)

    def arrive(self, use: Use) -> None:
        """Nothing is settled before all is there."""

    def _settle_together(self, parameters: set[int], uses: list[Use]) -> None:
        n = uses[0].n
        size = sum(self.watch.watched[k].numel() * self.watch.watched[k].element_size() for k in parameters)
        step = max(1, BLOCK_BYTES // size)
        for i in range(0, n, step):
            left = self._flat(parameters, uses, i, min(n, i + step))
            for j in range(i, n, step):
                right = left if i == j else self._flat(parameters, uses, j, min(n, j + step))
                block = (left @ right.T).to(self.gram.dtype)
                self.gram[i : i + step, j : j + step] += block
                if j > i:
                    self.gram[j : j + step, i : i + step] += block.T

    def _flat(self, parameters: set[int], uses: list[Use], start: int, stop: int) -> Tensor:
        gradients = self._gradients(parameters, uses, start, stop)
        return torch.cat([gradient.flatten(1) for gradient in gradients.values()], 1)


def _fast(engine: Engine, inputs: Batch, targets: Batch) -> Tensor:
    ledger = GramLedger(engine, size_of(inputs))
    engine.follow(ledger, engine.rehearsed(inputs, targets).script, inputs, targets)
    return ledger.gram


def _looped(engine: Engine, inputs: Batch, targets: Batch, n: int) -> Tensor:
    """One gradient after the other, kept whole: what a small set allows."""
    gradients = []
    for i in range(n):
        with torch.enable_grad():
            with engine.casting():
                outputs = call(engine.model, single(inputs, i))
                value = example_losses(engine.loss, outputs, single(targets, i), 1)
            found = gradients_of(value, engine.parameters)
        gradients.append(torch.cat([gradient.flatten() for gradient in found.values()]))
    stacked = torch.stack(gradients)
    return stacked @ stacked.T
