"""The stages of a calibration: reference models, and forget sets that are unlearned against them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from remanence.audit import evaluate
from remanence.data import Split
from remanence.experiments import Evaluations, curve, half_of, train_without, unlearn_and_measure
from remanence.experiments.relearning import constant_rate
from remanence.experiments.unlearn import begin_unlearning
from remanence.forecast import ReferencePool
from remanence.requests.calibration import Calibration, read_calibration, with_targets, without_targets
from remanence.requests.criterion import (
    STOPPING_HALF,
    Criterion,
    criterion_for,
    monitored_settings,
    stopping_split,
)
from remanence.requests.method_choice import came_back
from remanence.requests.reference_folds import assign_folds
from remanence.requests.routing import needs_nothing, way_of, without_work
from remanence.requests.verdict import SIGNALS
from remanence.requests.verdict_signals import (
    VERDICT_HALF,
    excess_context,
    signals_of,
    stopping_excess,
    stopping_outputs,
)
from remanence.scores import score_table
from remanence.stages import Read, Stage
from remanence.storage import Draft, Folder
from remanence.tasks import Recipe, derive_seed
from remanence.training import Run, RunReference, Training
from remanence.types import ForgetSet, Scores, as_ids, positions_of
from remanence.unlearning import FoldTargets, outputs_on

Floats = NDArray[np.float64]
_EPOCHS_AFTER = 3
"""Epochs on retained data after which a set must still be forgotten."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceModel(Stage):
    """A model trained without one fold of the data, the one with this index.

    Args:
        run: the run that is calibrated.
        models: number of models that share the data between them.
        index: index of this one.
        first: number of models that the run had before these.
        seed: random seed of the calibration.
    """

    kind = "reference"
    version = 7

    run: RunReference
    models: int
    index: int
    first: int
    seed: int

    def compute(self, draft: Draft, read: Read) -> None:
        """Train it; write what the criterion and the verdict read on the examples that it left out."""
        run = self.run.open()
        task = run.task
        seed = derive_seed(self.seed, "folds", self.first)
        folds = assign_folds(task.train.strata, self.models, seed=seed, losses=training_losses(run))
        left_out = folds[self.index]
        fold = ForgetSet("fold", task.train.ids[left_out])
        started = time.perf_counter()
        model, steps = train_without(
            task, fold.ids, seed=derive_seed(self.seed, "fold", self.first + self.index)
        )
        seconds = time.perf_counter() - started
        split = task.split(fold)
        evaluation, unseen = (evaluate(model, half_of(split, half)) for half in (STOPPING_HALF, VERDICT_HALF))
        signals = {f"verdict_{name}": values for name, values in signals_of(unseen).items()}
        arrays = {"left_out": left_out}
        for name, values in (stopping_outputs(evaluation) | signals).items():
            arrays[name] = np.zeros(len(left_out))
            arrays[name][left_out] = values
        draft.tensors("reference", arrays)
        outputs = outputs_on(model, split.forget)
        if outputs is not None:
            draft.tensors("outputs", {"outputs": outputs.float().numpy()})
        draft.document("training", {"steps": steps, "seconds": seconds, "test": evaluation.test.accuracy})


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationTrial(Stage):
    """One forget set, unlearned until the criterion of the reference models holds or the budget ends.

    With `train_on`, after a set is forgotten the model is trained on retained data for three epochs and tested again,
    unless the set looked forgotten before unlearning: then there is nothing that could come back.
    `earlier` is the digest of the calibration that is extended, whose models count too; empty without one.
    """

    kind = "calibration-trial"
    version = 15

    references: tuple[ReferenceModel, ...]
    run: RunReference
    earlier: str
    name: str
    ids: tuple[int | str, ...]
    method: str
    options: Mapping[str, Any]
    budget: int
    seed: int
    train_on: bool = False

    @property
    def forget_set(self) -> ForgetSet:
        return ForgetSet(self.name, as_ids(self.ids))

    def compute(self, draft: Draft, read: Read) -> None:
        """Unlearn the set; write the measurements, the seconds per step, and whether it stays forgotten."""
        run = self.run.open()
        split = run.split(self.forget_set)
        references = [read(reference) for reference in self.references]
        earlier = read_calibration(run) if self.earlier else None
        watched = stopping_split(split, self.seed)
        excess = stopping_excess(run.model(), watched, reference_pool(run, references, earlier))
        before = excess(stopping_outputs(evaluate(run.model(), watched))["log_odds"])
        epoch = run.settings.recipe.steps_per_epoch(len(split.retain))
        criterion = criterion_for(excess.error, before, epoch)
        done = criterion.is_close(before)
        with tempfile.TemporaryDirectory() as folder:
            targets = Path(folder) / "targets"
            made = fold_targets(run, references, earlier)
            own = self._options(run, done, excess.error)
            options = with_targets(self.method, own, targets)
            if made is None:
                options = without_targets(options)
            elif "targets" in options:
                made.write(targets)
            settings = monitored_settings(run, self.method, options, self.budget, self.seed)
            _, training, total = begin_unlearning(run, split, settings)
        evaluations = Evaluations(watched, settings.metrics, settings.at, self.seed, excess_context(excess))
        started = time.perf_counter()
        trajectory = unlearn_and_measure(training, evaluations, steps=total, until=criterion.holds)
        seconds = time.perf_counter() - started
        if trajectory.diverged is not None:
            raise trajectory.diverged
        draft.rows("measurements", map(asdict, trajectory.rows))
        stays = None
        if self.train_on and not done and criterion.holds(trajectory.rows):
            stays = _stays(training, split, run.settings.recipe, criterion, evaluations)
        per_step = seconds / max(1, trajectory.last_step)
        draft.document(
            "timing",
            {
                "seconds_per_step": per_step,
                "criterion": asdict(criterion),
                "stays": stays,
                "way": way_of(self.method, own, _losses(run), as_ids(self.ids)),
            },
        )

    def _options(self, run: Run, done: bool, error: float) -> Mapping[str, Any]:
        """The hyperparameters, as those of a request would be."""
        if not needs_nothing(self.method, error, len(self.ids), done=done):
            return self.options
        return without_work(self.options, _losses(run), as_ids(self.ids))


def reference_pool(run: Run, references: Sequence[Folder], earlier: Calibration | None) -> ReferencePool:
    """The models of the folders, and those of the calibration that is extended."""
    kept = None if earlier is None or earlier.inherited else earlier.pool
    if not references and kept is not None:
        return kept
    train, _ = run.data()
    arrays = [folder.tensors("reference") for folder in references]
    stacked = {name: np.stack([model[name] for model in arrays]) for name in arrays[0]}
    signals = {name: stacked.pop(f"verdict_{name}") for name in SIGNALS if f"verdict_{name}" in stacked}
    pool = ReferencePool(train.ids, train.strata, losses=training_losses(run), **stacked, signals=signals)
    return pool if kept is None else kept.joined(pool)


def training_losses(run: Run) -> Floats:
    """The privacy losses of the training examples, in their order."""
    scores = _losses(run)
    return scores.values[positions_of(run.data()[0].ids, scores.ids, what="the trace")]


def _losses(run: Run) -> Scores:
    return score_table(run.trace(), ["privacy_loss"]).column("privacy_loss")


def fold_targets(run: Run, references: Sequence[Folder], earlier: Calibration | None) -> FoldTargets | None:
    """The outputs of reference models on what they left out; None if their outputs are not numbers."""
    kept = None if earlier is None or earlier.inherited else earlier.targets
    if not references:
        return kept
    if not all(folder.has("outputs.safetensors") for folder in references):
        return None
    new = FoldTargets.from_folds(
        run.data()[0],
        (
            (folder.tensors("reference")["left_out"], torch.from_numpy(folder.tensors("outputs")["outputs"]))
            for folder in references
        ),
        losses=training_losses(run),
    )
    return new if kept is None else kept.joined(new)


def _stays(
    training: Training, split: Split, recipe: Recipe, criterion: Criterion, evaluations: Evaluations
) -> bool:
    """Whether the examples stay forgotten when the model is trained on retained data for three epochs."""
    seed, longer = derive_seed(training.seed, "after"), constant_rate(recipe, _EPOCHS_AFTER)
    further = Training(training.model, split.retain, longer, seed=seed)
    rows = unlearn_and_measure(further, replace(evaluations, steps={further.total_steps})).rows
    _, excess = curve(rows, criterion.metric)
    return bool(excess) and not came_back(criterion, excess[-1])
