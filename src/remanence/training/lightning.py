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
from remanence.types import NormTrace


class RecorderCallback(pl.Callback):
    """Records while Lightning trains; `trace` holds the result afterwards.

    Args:
        examples: the training examples, best through `rm.with_ids`.
        model: how to get from the LightningModule to the network whose gradients count; itself by default. It must
            map a batch of inputs to logits.
        options: as for `rm.Recorder` (mechanism, checkpoints, out, …); `total_steps` comes from the Trainer.
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
        self._seen = 0
        self.trace: NormTrace | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look at the model before its first step."""
        total = int(trainer.estimated_stepping_batches)
        if total < 1:
            raise InputError(
                "The Trainer must have an end (max_epochs or max_steps) to place checkpoints in."
            )
        self._seen = trainer.global_step
        self._recorder = Recorder(
            self._model(pl_module), self._examples, total_steps=total, start=self._seen, **self._options
        )

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        """One batch; with gradient accumulation, perhaps no step."""
        if self._recorder is not None and trainer.global_step > self._seen:
            self._seen = trainer.global_step
            self._recorder.step()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the trace."""
        if self._recorder is not None:
            self.trace = self._recorder.finish()
