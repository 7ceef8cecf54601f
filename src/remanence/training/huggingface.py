"""A Recorder for Hugging Face: `Trainer(..., callbacks=[RecorderCallback(train_set, mechanism=...)])`.

Needs the package `transformers`, which Remanence does not install.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import TrainerCallback

from remanence.data import Examples
from remanence.training.recorder import Recorder
from remanence.types import Trace


class Logits(nn.Module):
    """Wraps a Hugging Face classifier so that it maps one input tensor to logits; shares its parameters.

    Args:
        model: the classifier.
        argument: name of its input (`pixel_values`, `input_ids`, …).
    """

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(**{self.argument: inputs}).logits
        return logits


class RecorderCallback(TrainerCallback):
    """Records a trace while a Hugging Face Trainer trains; `trace` holds it afterwards.

    Args:
        examples: the training examples, or a data set of (input, label) pairs, preferably from `rm.with_ids`.
        argument: name of the model's input.
        options: arguments of `rm.Recorder` (mechanism, checkpoints, out, …); `total_steps` comes from the Trainer.
    """

    def __init__(
        self, examples: Examples | Dataset[Any], *, argument: str = "pixel_values", **options: Any
    ) -> None:
        self._examples, self._argument, self._options = examples, argument, options
        self._recorder: Recorder | None = None
        self.trace: Trace | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:
        self._recorder = Recorder(
            Logits(model, self._argument),
            self._examples,
            total_steps=state.max_steps,
            start=state.global_step,
            **self._options,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._recorder is not None:
            self._recorder.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._recorder is not None:
            self.trace = self._recorder.finish()
