"""Record what training leaves behind of each example, without disturbing it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from remanence.data import Examples
from remanence.errors import InputError
from remanence.gradients.norms import example_gradient_norms
from remanence.types import Mechanism, NormTrace


def even_steps(total_steps: int, checkpoints: int) -> NDArray[np.int64]:
    """Step 0 and `checkpoints` evenly spaced steps, the last being the end of training."""
    if not 1 <= checkpoints <= total_steps:
        raise InputError(
            f"`checkpoints` must be between 1 and the number of training steps, {total_steps}; got {checkpoints}."
        )
    return np.round(np.linspace(0, total_steps, checkpoints + 1)).astype(np.int64)


class Recorder:
    """Call `step()` after each optimizer step; `finish()` gives the trace.

    At the initial model and at `checkpoints` later moments it makes one evaluation-mode pass over the
    examples and keeps gradient norm, confidence in the true class and error norm (EL2N) of each.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        *,
        total_steps: int,
        mechanism: Mechanism,
        checkpoints: int = 35,
        provenance: Mapping[str, str] | None = None,
    ) -> None:
        self._model, self._examples = model, examples
        self._mechanism, self._provenance = mechanism, dict(provenance or {})
        self._due = even_steps(total_steps, checkpoints)
        self._step = 0
        self._rows: list[dict[str, NDArray[np.float32]]] = []
        self._record_if_due()

    def step(self) -> None:
        """One optimizer step has been taken."""
        self._step += 1
        self._record_if_due()

    def finish(self) -> NormTrace:
        """The trace of the whole run."""
        if len(self._rows) != len(self._due):
            raise InputError(
                f"Training must reach step {self._due[-1]} before the recorder finishes; it is at {self._step}."
            )
        columns = {name: np.stack([row[name] for row in self._rows]) for name in self._rows[0]}
        return NormTrace(
            ids=self._examples.ids,
            steps=self._due,
            mechanism=self._mechanism,
            provenance=self._provenance,
            **columns,
        )

    def _record_if_due(self) -> None:
        if len(self._rows) < len(self._due) and self._step == self._due[len(self._rows)]:
            self._rows.append(_observe(self._model, self._examples))


def _observe(model: nn.Module, examples: Examples) -> dict[str, NDArray[np.float32]]:
    norms = example_gradient_norms(model, examples.inputs, examples.labels)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            probabilities = model(examples.inputs).softmax(dim=1)
    finally:
        model.train(was_training)
    truth = nn.functional.one_hot(examples.labels, probabilities.shape[1])
    return {
        "norms": norms.numpy(),
        "confidence": (probabilities * truth).sum(dim=1).numpy(),
        "error": (probabilities - truth).norm(dim=1).numpy(),
    }
