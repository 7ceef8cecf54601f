"""A Recorder for Lightning: `Trainer(callbacks=[RecorderCallback(train_set, mechanism=...)])`.

Needs the package `lightning`, which Remanence does not install.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from torch import nn
from torch.utils.data import Dataset

from remanence.data import Examples
from remanence.errors import InputError
from remanence.training.recorder import Recorder
from remanence.types import Trace


class RecorderCallback(pl.Callback):
    """Records a trace while Lightning trains; `trace` holds it afterwards.

    Args:
        examples: the training examples, or a data set of (input, label) pairs, preferably from `rm.with_ids`.
        model: function from the LightningModule to the network, which maps a batch of inputs to logits; by default the
            LightningModule itself.
        options: arguments of `rm.Recorder` (mechanism, checkpoints, out, …); `total_steps` comes from the Trainer.
    """

    def __init__(
        self,
        examples: Examples | Dataset[Any],
        *,
        model: Callable[[pl.LightningModule], nn.Module] = lambda module: module,
        **options: Any,
    ) -> None:
        self._examples, self._model, self._options = examples, model, options
        self._recorder: Recorder | None = None
        self._last_step = 0
        self.trace: Trace | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        total = int(trainer.estimated_stepping_batches)
        if total < 1:
            raise InputError(
                "The Trainer must have an end (`max_epochs` or `max_steps`), so that checkpoints can be placed."
            )
        self._last_step = trainer.global_step
        self._recorder = Recorder(
            self._model(pl_module), self._examples, total_steps=total, start=self._last_step, **self._options
        )

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        """Count an optimizer step, unless the batch only accumulated gradients."""
        if self._recorder is not None and trainer.global_step > self._last_step:
            self._last_step = trainer.global_step
            self._recorder.step()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._recorder is not None:
            self.trace = self._recorder.finish()
