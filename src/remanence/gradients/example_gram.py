"""Inner products between the gradients of a small set of examples."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, single, size_of
from remanence.gradients.accumulator import NormAccumulator
from remanence.gradients.engine_memory import remembering
from remanence.gradients.evaluation_mode import evaluating
from remanence.gradients.example_loop import gradients_of
from remanence.gradients.example_norms import checked_batch, prepare_engine, refuse_infinite
from remanence.gradients.layers.rule import ParameterUse
from remanence.gradients.norm_engine import NormEngine
from remanence.losses import ExampleLoss, example_losses

BLOCK_BYTES = 128 << 20
"""Size of one block of per-example gradients; two such blocks are in memory at once."""


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
    engine = prepare_engine(model, loss, parameters, dtype, by_parameter=False)
    inputs, targets = checked_batch(engine, inputs, targets, dtype)
    n = size_of(inputs)
    with evaluating(engine.model), remembering(engine):
        norms = engine.squared_norms(inputs, targets)
        refuse_infinite(norms, range(n))
        compute = _loop_gram if engine.learned.uses_loop or n == 1 else _batched_gram
        gram = compute(engine, inputs, targets)
    return gram.to(torch.float64 if engine.dtype == torch.float64 else torch.float32)


class GramAccumulator(NormAccumulator):
    """Keeps every use and multiplies examples with each other instead of squaring."""

    def __init__(self, engine: NormEngine, n: int) -> None:
        super().__init__(engine.names, n, engine.device)
        self.gram = torch.zeros(n, n, dtype=self.dtype, device=engine.device)

    def add(self, use: ParameterUse) -> None:
        """Nothing is computed before all gradients are there."""

    def _add_together(self, parameters: set[int], uses: list[ParameterUse]) -> None:
        n = uses[0].n
        size = sum(
            self.tracker.tracked[k].numel() * self.tracker.tracked[k].element_size() for k in parameters
        )
        step = max(1, BLOCK_BYTES // size)
        for i in range(0, n, step):
            left = self._flat(parameters, uses, i, min(n, i + step))
            for j in range(i, n, step):
                right = left if i == j else self._flat(parameters, uses, j, min(n, j + step))
                block = (left @ right.T).to(self.gram.dtype)
                self.gram[i : i + step, j : j + step] += block
                if j > i:
                    self.gram[j : j + step, i : i + step] += block.T

    def _flat(self, parameters: set[int], uses: list[ParameterUse], start: int, stop: int) -> Tensor:
        gradients = self._gradients(parameters, uses, start, stop)
        return torch.cat([gradient.reshape(stop - start, -1) for gradient in gradients.values()], 1)


def _batched_gram(engine: NormEngine, inputs: Batch, targets: Batch) -> Tensor:
    accumulator = GramAccumulator(engine, size_of(inputs))
    engine.accumulate(accumulator, engine.recording(inputs, targets).calls, inputs, targets)
    return accumulator.gram


def _loop_gram(engine: NormEngine, inputs: Batch, targets: Batch) -> Tensor:
    """One gradient after the other, all kept in memory."""
    gradients = []
    for i in range(size_of(inputs)):
        with torch.enable_grad():
            with engine.casting():
                outputs = call(engine.model, single(inputs, i))
                value = example_losses(engine.loss, outputs, single(targets, i), 1)
            by_parameter = gradients_of(value, engine.parameters)
        gradients.append(torch.cat([gradient.flatten() for gradient in by_parameter.values()]))
    stacked = torch.stack(gradients)
    return stacked @ stacked.T
