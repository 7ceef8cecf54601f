"""A task: all that Remanence has to know of a model and its training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from remanence.batches import call, moved, size_of
from remanence.data import Examples, IdentifiedDataset, Split, StreamedExamples, with_ids
from remanence.data.identified_dataset import Collate, Unpack
from remanence.errors import InputError
from remanence.losses import CLOSE, ExampleLoss, Readout, class_logits, loss_function, squared_error, within
from remanence.tasks.devices import resolve_device
from remanence.tasks.randomness import derive_seed
from remanence.tasks.recipe import Recipe
from remanence.types import ForgetSet

DEFAULT_RECIPE = Recipe(epochs=30, learning_rate=0.001, optimizer="adamw", weight_decay=0.01)
"""For tasks that bring their own `fit` and no recipe: how unlearning methods take their steps."""
_TARGETS_READ = 1000


class Fit(Protocol):
    """The user's own training: trains the model in place on the data set."""

    def __call__(
        self, model: nn.Module, dataset: Dataset[Any], *, seed: int, steps: int | None = None
    ) -> Any: ...


@dataclass(frozen=True, eq=False, init=False)
class Task:
    """How to build a model, its data, how its outputs are judged, and how it is trained.

    ```python
    task = rm.Task(model=build, train=train_set, test=test_set, loss=rm.losses.cross_entropy, fit=fit)
    ```

    Args:
        model: function that builds a new, untrained module.
        train: the training data: examples, or any map-style data set, best from `rm.with_ids`. It must give the same
            items at every read; random augmentation belongs into `fit` or `recipe`.
        test: data that the model is not trained on.
        recipe: how to train, and how unlearning methods take their steps.
        loss: name of a loss, or a function (outputs, targets) -> one loss per example; by default that of the examples,
            which is the cross-entropy unless they say otherwise.
        signal: function (outputs, targets) -> one number per example, larger for examples that the model was trained
            on; by default the log-odds of the true class, or minus the loss if the outputs are not classes.
        correct: function (outputs, targets) -> whether the answer on each example is right; by default the most likely
            class, all labels, or a prediction within half a standard deviation of the target.
        fit: your own training, `fit(model, dataset, *, seed, steps=None)`, which trains the model in place; used
            instead of the recipe wherever a model is trained from scratch.
        collate_fn: makes a batch of a list of items of the data sets; torch's own by default.
        unpack: splits a batch into inputs and targets; by default a pair, or a dict with `labels`.
        device: where to compute: `auto`, or any torch device.
        workers: processes that read batches of a data set ahead.
        import_path: where other processes find this task, `package.module:name`; found by itself if the task is a
            variable of a module.
    """

    model: Callable[[], nn.Module]
    train: Examples
    test: Examples
    recipe: Recipe
    fit: Fit | None
    device: torch.device
    import_path: str

    def __init__(
        self,
        model: Callable[[], nn.Module],
        train: Examples | Dataset[Any],
        test: Examples | Dataset[Any],
        recipe: Recipe | None = None,
        *,
        loss: str | ExampleLoss | None = None,
        signal: ExampleLoss | None = None,
        correct: Callable[[Any, Any], Tensor] | None = None,
        fit: Fit | None = None,
        collate_fn: Collate | None = None,
        unpack: Unpack | None = None,
        device: str | torch.device = "cpu",
        workers: int = 0,
        import_path: str = "",
    ) -> None:
        if isinstance(model, nn.Module) or not callable(model):
            raise InputError(
                f"`model` must be a function that builds a new, untrained module; got a {type(model).__name__}."
            )
        if recipe is None and fit is None:
            raise InputError("A task needs `recipe` or `fit`, to train models without some of its examples.")
        parts = [as_examples(part, collate_fn, unpack, workers) for part in (train, test)]
        if not all(map(len, parts)):
            raise InputError("`train` and `test` must both hold examples; one of them is empty.")
        readout = _readout(parts[0], loss, signal, correct)
        values = {
            "model": model,
            "train": parts[0].with_readout(readout),
            "test": parts[1].with_readout(readout),
            "recipe": recipe or DEFAULT_RECIPE,
            "fit": fit,
            "device": resolve_device(device),
            "import_path": import_path,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def new_model(self, seed: int) -> nn.Module:
        """A new module on the task's device. Its initial weights depend only on the seed, not on the device."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "weights"))
            model = self.model()
        if not isinstance(model, nn.Module):
            raise InputError(f"`model` must build a torch.nn.Module; it gave a {type(model).__name__}.")
        return model.to(self.device)

    def split(self, forget_set: ForgetSet) -> Split:
        """The data, split by a forget set."""
        return Split(self.train, self.test, forget_set)

    def check(self) -> None:
        """Try two examples: the model takes them, and the loss gives one value for each."""
        model = self.new_model(0).eval()
        for name, examples in (("train", self.train), ("test", self.test)):
            inputs, targets = examples.batch(torch.arange(min(2, len(examples))))
            with torch.no_grad():
                try:
                    outputs = call(model, moved(inputs, self.device))
                except (RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
                    reason = str(error).splitlines()[0]
                    raise InputError(
                        f"The model must take the inputs of `{name}`; it does not: {reason}"
                    ) from None
                try:
                    examples.readout.losses(outputs, moved(targets, self.device), size_of(inputs))
                except (RuntimeError, IndexError, ValueError, TypeError, AttributeError) as error:
                    reason = str(error).splitlines()[0]
                    raise InputError(
                        f"The loss must take the model's outputs and the targets of `{name}`; it does not: {reason} "
                        "Are there as many outputs as classes?"
                    ) from None
            _check_labels(examples, class_logits(outputs, targets), name)


def _check_labels(examples: Examples, logits: Tensor | None, name: str) -> None:
    """Refuse classes beyond the model's outputs, where the labels are at hand."""
    streamed = isinstance(examples, StreamedExamples) and examples.dataset.kept_targets is None
    if logits is None or streamed:
        return
    largest, outputs = int(examples.labels.max()), logits.shape[1]
    if largest >= outputs:
        raise InputError(
            f"The model must have an output for every class of `{name}`; it has {outputs} for labels up to {largest}."
        )


def as_examples(
    data: Examples | Dataset[Any],
    collate_fn: Collate | None = None,
    unpack: Unpack | None = None,
    workers: int = 0,
    ids: ArrayLike | None = None,
) -> Examples:
    """Examples of any data set. Tensors in memory stay there; everything else is read batch by batch."""
    if isinstance(data, Examples):
        return data
    named = data if isinstance(data, IdentifiedDataset) and ids is None else with_ids(data, ids)
    if collate_fn is not None or unpack is not None:
        named = with_ids(named.dataset, named.ids, collate_fn=collate_fn, unpack=unpack)
    elif isinstance(named.dataset, TensorDataset) and len(named.dataset.tensors) == 2:
        inputs, targets = named.dataset.tensors
        return Examples(named.ids, inputs, targets, _class_names(named, targets))
    if not named.deterministic:
        raise InputError(
            "Inputs must be the same at every read; these differ between two reads of one row. Pass the data set "
            "without its random augmentation, and augment in your training instead."
        )
    return StreamedExamples(named, workers=workers)


def _class_names(dataset: IdentifiedDataset, targets: Tensor) -> tuple[str, ...]:
    if targets.dim() != 1 or targets.is_floating_point() or not len(targets):
        return ()
    return dataset.class_names or tuple(str(number) for number in range(int(targets.max()) + 1))


def _readout(
    train: Examples,
    loss: str | ExampleLoss | None,
    signal: ExampleLoss | None,
    correct: Callable[[Any, Any], Tensor] | None,
) -> Readout:
    """The readout of the data with what the user gave; regression is right within half a standard deviation."""
    own = train.readout
    function = own.loss if loss is None else loss_function(loss)
    right = correct or (own.correct if function is own.loss else None)
    if right is None and function is squared_error:
        _, targets = train.batch(torch.arange(min(_TARGETS_READ, len(train))))
        right = within(CLOSE * float(targets.float().std()))
    return Readout(function, signal or own.signal, right)


def data_digest(task: Task) -> str:
    """Digest of the training and test data of a task, by which a run recognizes them."""
    return "-".join(examples.digest()[:16] for examples in (task.train, task.test))
