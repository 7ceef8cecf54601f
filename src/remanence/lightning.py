"""For Lightning: a task from a module and its data, and a Recorder as a callback.

Needs the package `lightning`, which Remanence does not install.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from torch import nn
from torch.utils.data import DataLoader, Dataset

from remanence.data import Examples, with_ids
from remanence.errors import InputError
from remanence.tasks import Recipe, Task
from remanence.training.recorder import Recorder
from remanence.types import Trace
from remanence.unlearning.retrain import reset_weights


def task_from(
    module: pl.LightningModule,
    datamodule: pl.LightningDataModule,
    *,
    epochs: int,
    network: Callable[[Any], nn.Module] = lambda module: module,
    ids: Any = None,
    **changes: Any,
) -> Task:
    """The task of a LightningModule and a LightningDataModule.

    Models are built anew from the module's hyperparameters (`save_hyperparameters`), or from a copy whose layers are
    reset. Oracles and fold models are trained by a Trainer for `epochs` epochs.

    Args:
        module: the module.
        datamodule: its data; the test data are those of `test_dataloader`, or else of `val_dataloader`.
        epochs: number of epochs of the training.
        network: function from the module to the network that maps inputs to outputs; by default the module itself.
        ids: one unique id per training example; positions by default.
        changes: further arguments of `Task`, which take precedence (`loss`, `signal`, `correct`, `recipe`, …).
    """
    datamodule.prepare_data()
    datamodule.setup("fit")
    train = _loader(datamodule.train_dataloader(), "train_dataloader")
    test = _loader(_test_loader(datamodule), "test_dataloader")
    size = train.batch_size or 1
    template = copy.deepcopy(module)

    def build() -> nn.Module:
        return _Network(_new_module(template), network)

    optimizer, rate = _optimizer_of(module)
    settings: dict[str, Any] = {
        "model": build,
        "train": with_ids(train.dataset, ids, collate_fn=train.collate_fn),
        "test": with_ids(test.dataset, collate_fn=test.collate_fn),
        "recipe": Recipe(epochs=epochs, learning_rate=rate, batch_size=size, optimizer=optimizer),
        "fit": _fit_by_trainer(epochs, size, train.collate_fn),
    }
    return Task(**(settings | changes))


class _Network(nn.Module):
    """A module whose forward pass is that of its network; Lightning trains the module."""

    def __init__(self, module: pl.LightningModule, network: Callable[[Any], nn.Module]) -> None:
        super().__init__()
        self.module, self._network = module, network

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self._network(self.module)(*inputs, **named)


class RecorderCallback(pl.Callback):
    """Records a trace while Lightning trains; `trace` holds it afterwards.

    Args:
        examples: the training examples, or a data set, preferably from `rm.with_ids`; by default those of `task`.
        model: function from the LightningModule to the network, which maps a batch of inputs to outputs; by default the
            LightningModule itself.
        options: arguments of `rm.Recorder` (mechanism, checkpoints or overhead, out, …); `total_steps` comes from the
            Trainer.
    """

    def __init__(
        self,
        examples: Examples | Dataset[Any] | None = None,
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


def _test_loader(datamodule: pl.LightningDataModule) -> Any:
    for stage, name in (("test", "test_dataloader"), ("fit", "val_dataloader")):
        try:
            datamodule.setup(stage)
            return getattr(datamodule, name)()
        except (NotImplementedError, pl.utilities.exceptions.MisconfigurationException):
            continue
    raise InputError("The data module must have a `test_dataloader` or a `val_dataloader`; it has neither.")


def _loader(loader: Any, name: str) -> DataLoader[Any]:
    if not isinstance(loader, DataLoader):
        raise InputError(f"`{name}` must give one DataLoader; got a {type(loader).__name__}.")
    return loader


def _new_module(template: pl.LightningModule) -> pl.LightningModule:
    if template.hparams:
        return type(template)(**template.hparams)
    module = copy.deepcopy(template)
    reset_weights(module, "call `save_hyperparameters()` in the module's constructor, or pass `model`")
    return module


def _optimizer_of(module: pl.LightningModule) -> tuple[str, float]:
    """Kind and learning rate of the optimizer that the module configures."""
    configured: Any = copy.deepcopy(module).configure_optimizers()
    configured = configured.get("optimizer") if isinstance(configured, dict) else configured
    while isinstance(configured, list | tuple):
        configured = configured[0]
    return type(configured).__name__.lower(), float(configured.param_groups[0]["lr"])


def _fit_by_trainer(epochs: int, size: int, collate: Any) -> Any:
    def fit(model: nn.Module, dataset: Dataset[Any], *, seed: int, steps: int | None = None) -> None:
        pl.seed_everything(seed % 2**32, verbose=False)
        trainer = pl.Trainer(
            max_epochs=epochs if steps is None else None,
            max_steps=-1 if steps is None else steps,
            accelerator="cpu" if next(model.parameters()).device.type == "cpu" else "auto",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader = DataLoader(dataset, size, shuffle=True, collate_fn=collate)
        trainer.fit(model.module, loader)

    return fit
