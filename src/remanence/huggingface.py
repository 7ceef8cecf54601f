"""For Hugging Face: a task from a Trainer, and a Recorder as a callback.

Needs the package `transformers`, which Remanence does not install.
"""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PrinterCallback, Trainer, TrainerCallback

from remanence.batches import Batch
from remanence.data import Examples, with_ids
from remanence.errors import InputError
from remanence.tasks import ASSUMED_SIGMA, Recipe, Task
from remanence.training.recorder import Recorder
from remanence.types import Mechanism, Trace

_LOSSES = {"regression": "squared_error", "multi_label_classification": "binary_cross_entropy"}
_SCHEDULES = {
    "constant": "constant",
    "constant_with_warmup": "constant",
    "linear": "linear",
    "cosine": "cosine",
}


def task_from(trainer: Trainer, *, ids: Any = None, device: str = "cpu", **changes: Any) -> Task:
    """The task of a Trainer: its model, data sets, collator and settings.

    Oracles and fold models are trained by a Trainer with the same arguments and another seed. Unlearning methods take
    their steps with the optimizer settings of these arguments.

    Args:
        trainer: a Trainer before or after training, with `train_dataset` and `eval_dataset`.
        ids: one unique id per training example; positions by default.
        device: where Remanence computes; a Trainer chooses its own device.
        changes: further arguments of `Task`, which take precedence (`loss`, `signal`, `correct`, `recipe`, `fit`, …).
    """
    if trainer.train_dataset is None or trainer.eval_dataset is None:
        raise InputError("The Trainer must have a `train_dataset` and an `eval_dataset`; one is missing.")
    if isinstance(trainer.eval_dataset, Mapping):
        raise InputError("The Trainer has several evaluation data sets; build the task with one of them.")
    unpack = _unpacker(trainer)
    parts = [
        with_ids(dataset, names, collate_fn=trainer.data_collator, unpack=unpack)
        for dataset, names in ((trainer.train_dataset, ids), (trainer.eval_dataset, None))
    ]
    problem = getattr(getattr(trainer.model, "config", None), "problem_type", None)
    settings = {
        "model": _builder(trainer),
        "train": parts[0],
        "test": parts[1],
        "recipe": recipe_from(trainer),
        "fit": _fit_by_trainer(trainer),
        "loss": _LOSSES.get(problem or "", "cross_entropy"),
        "device": device,
    }
    return Task(**(settings | changes))


def recipe_from(trainer: Trainer) -> Recipe:
    """The optimizer settings of a Trainer as a recipe."""
    arguments = trainer.args
    batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
    n = len(trainer.train_dataset)
    epochs = arguments.num_train_epochs if arguments.max_steps <= 0 else arguments.max_steps * batch / n
    schedule = _SCHEDULES.get(getattr(arguments.lr_scheduler_type, "value", ""), "constant")
    ratio = arguments.warmup_steps / max(1.0, epochs * n / batch) if arguments.warmup_steps >= 1 else 0.0
    return Recipe(
        epochs=max(1, round(epochs)),
        learning_rate=arguments.learning_rate,
        batch_size=batch,
        optimizer="sgd" if "sgd" in str(arguments.optim) else "adamw",
        weight_decay=arguments.weight_decay,
        clip=arguments.max_grad_norm or None,
        schedule=schedule,  # type: ignore[arg-type]
        warmup=min(0.99, ratio),
    )


class RecorderCallback(TrainerCallback):
    """Records a trace while a Trainer trains; `trace` holds it afterwards.

    Args:
        examples: the training data: examples, or an ordinary data set of dicts (`input_ids`, `attention_mask`,
            `labels`, …), preferably from `rm.with_ids`; by default those of `task`.
        mechanism: how it is trained; by default as the Trainer's batch size and number of steps say, with assumed
            noise.
        options: further arguments of `rm.Recorder` (task, checkpoints or overhead, out, …); `total_steps` comes
            from the Trainer.
    """

    def __init__(
        self,
        examples: Examples | Dataset[Any] | None = None,
        *,
        mechanism: Mechanism | None = None,
        **options: Any,
    ) -> None:
        self._examples, self._mechanism, self._options = examples, mechanism, options
        self._recorder: Recorder | None = None
        self.trace: Trace | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **given: Any) -> None:
        self._recorder = Recorder(
            model,
            self._examples,
            total_steps=state.max_steps,
            start=state.global_step,
            mechanism=self._mechanism or self._stated(args, state),
            optimizer=_plain_optimizer(given.get("optimizer")),
            **self._options,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._recorder is not None:
            self._recorder.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._recorder is not None:
            self.trace = self._recorder.finish()

    def _stated(self, args: Any, state: Any) -> Mechanism:
        task: Task | None = self._options.get("task")
        examples = self._examples if self._examples is not None else task and task.train
        if examples is None:
            raise InputError("Give `examples` or `task` to the callback: it must know the training examples.")
        n = len(examples)  # type: ignore[arg-type]
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size)
        return Mechanism(
            sigma=ASSUMED_SIGMA,
            sampling_rate=min(1.0, batch / n),
            steps=state.max_steps,
            batch_size=min(batch, n),
        )


def _builder(trainer: Trainer) -> Any:
    if trainer.model_init is not None:
        return trainer.model_init
    model = trainer.model
    if isinstance(model, PreTrainedModel):
        return lambda: type(model)(copy.deepcopy(model.config))
    raise InputError(
        "The Trainer must have a `model_init`, or a model made from a config, so that models can be trained anew; it "
        f"has a {type(model).__name__}."
    )


def _unpacker(trainer: Trainer) -> Any:
    """Inputs are what the model's `forward` takes, targets the labels."""
    model: Any = trainer.model
    accepted = inspect.signature(model.forward).parameters if model is not None else None
    names = [name for name in (trainer.label_names or ["labels"]) if name] or ["labels"]

    def unpack(batch: Mapping[str, Any]) -> tuple[Batch, Batch]:
        labels = next((batch[name] for name in (*names, "labels", "label") if name in batch), None)
        if labels is None:
            raise InputError(f"Batches must have labels under one of {names}; got {sorted(batch)}.")
        inputs = {
            name: value
            for name, value in batch.items()
            if name not in (*names, "labels", "label") and (accepted is None or name in accepted)
        }
        return inputs, labels

    return unpack


def _fit_by_trainer(trainer: Trainer) -> Any:
    """Train with a Trainer of the same arguments, without its outputs and callbacks."""
    arguments, collator = trainer.args, trainer.data_collator

    def fit(model: nn.Module, dataset: Dataset[Any], *, seed: int, steps: int | None = None) -> None:
        with tempfile.TemporaryDirectory() as folder:
            own = copy.copy(arguments)
            own.output_dir, own.seed, own.data_seed = folder, seed % 2**32, seed % 2**32
            own.save_strategy, own.eval_strategy, own.report_to, own.disable_tqdm = "no", "no", [], True
            if steps is not None:
                own.max_steps = steps
            quiet = Trainer(model=model, args=own, train_dataset=dataset, data_collator=collator)
            quiet.remove_callback(PrinterCallback)
            quiet.train()

    return fit


def _plain_optimizer(optimizer: Any) -> Any:
    """The torch optimizer inside the wrapper of Accelerate."""
    return getattr(optimizer, "optimizer", optimizer)
