"""Stages that train: the model that is unlearned, and the oracles that never saw a forget set."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from remanence.audit.evaluation import model_outputs
from remanence.audit.membership import auc
from remanence.audit.membership_attack import membership_attack
from remanence.data import Examples
from remanence.experiments import oracle_seed, train_without
from remanence.stages import Read, Stage
from remanence.storage import Draft, write_trace
from remanence.study.artifacts import PoisonSettings, read_forget_set, read_model
from remanence.tasks import TaskSource
from remanence.training import Recording, Training, train_and_record, write_weights
from remanence.training.placement import Placement


@dataclass(frozen=True, eq=False, kw_only=True)
class Train(Stage):
    """A training run with its trace; some forget sets can carry poison.

    Args:
        task: what to train.
        seed: random seed of the run.
        record: checkpoints of the trace; none when 0.
        placement: where they fall.
        poison: the noise on the inputs of the poisoned forget sets.
        poisoned: these forget sets.
    """

    kind = "train"
    version = 2

    task: TaskSource
    seed: int
    record: int = 0
    placement: Placement = "even"
    poison: PoisonSettings | None = None
    poisoned: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the weights and the trace."""
        task = self.task.open()
        model = task.new_model(self.seed)
        training = Training(model, self._examples(task.train, read), task.recipe, seed=self.seed)
        recording = Recording(self.record, self.placement) if self.record else None
        recorder = train_and_record(training, recording)
        if recorder is not None:
            write_trace(draft, recorder.trace())
        write_weights(draft, model)

    def _examples(self, train: Examples, read: Read) -> Examples:
        if self.poison is None:
            return train
        forget_sets = [read_forget_set(read(stage)) for stage in self.poisoned]
        return self.poison.draw(train, forget_sets).applied(train)


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseModel(Stage):
    """How well a training run has memorised its data, before anything is unlearned."""

    kind = "base"

    task: TaskSource
    trained: Train

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the accuracies of the model and of a membership attack on all training and test examples."""
        task = self.task.open()
        model = read_model(read(self.trained), task)
        with torch.no_grad():
            train, test = (model_outputs(model, examples) for examples in (task.train, task.test))
        members, outsiders = (outputs.confidence.numpy() for outputs in (train, test))
        draft.document(
            "base",
            {
                "train_accuracy": train.accuracy,
                "test_accuracy": test.accuracy,
                "attack": membership_attack(members, outsiders, outsiders).accuracy,
                "auc": auc(train.margin.numpy(), test.margin.numpy()),
            },
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Oracle(Stage):
    """A model that never saw the forget set."""

    kind = "oracle"
    version = 2

    task: TaskSource
    seed: int
    index: int
    forget: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the weights."""
        forget_set = read_forget_set(read(self.forget))
        model, _ = train_without(self.task.open(), forget_set.ids, seed=oracle_seed(self.seed, self.index))
        write_weights(draft, model)
