"""Outputs of models on examples that they were not trained on, kept in a sealed folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.batches import call, device_of, moved, size_of, tensors_of
from remanence.data import Examples
from remanence.errors import DataError, InputError, RunFolderError
from remanence.gradients.evaluation_mode import evaluating
from remanence.losses import logits_of
from remanence.scores.equally_hard import equally_hard, shares_removed
from remanence.storage import Draft, Folder, create, open_folder
from remanence.types import Ids, as_ids, positions_of

_KIND = "fold-targets"
_FILE = "fold_targets"
_BATCH = 256
_SHAPES = {"outputs": "f2", "rows": "i1", "models": "i1", "fingerprints": "i1", "labels": "i1"}
"""Kind of number and number of dimensions of the arrays."""
_MOST_CLASSES = 2**20
_SEED = 0
_DIGITS = 6
"""Decimals to which distances are compared: closer ones are ties."""


@dataclass(frozen=True)
class _Ids:
    """What the document of a folder with targets holds."""

    ids: tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class FoldTargets:
    """What models that never saw an example say about it.

    An example that was left out by several models gets the output of one of them, as `of` says. Their mean would be
    less sure than any of them: a model that is drawn towards it is called never trained on too often.

    Args:
        ids: the n examples.
        outputs: [k, outputs] logarithms of the probabilities where the outputs are classes, else the outputs; one row
            for each pair of a model and an example that it was trained without.
        rows: [k] the example of each pair, as a position in `ids`.
        models: [k] the model of each pair.
        fingerprints: [n] a hash of input and label of each example, by which other data are recognized.
        labels: [n] the class of each example.
        losses: [n] the privacy loss of each example, for methods that treat examples by their difficulty.
    """

    ids: Ids
    outputs: NDArray[np.float32]
    rows: NDArray[np.int64]
    models: NDArray[np.int64]
    fingerprints: NDArray[np.int64]
    labels: NDArray[np.int64]
    losses: NDArray[np.float64] | None = None

    @classmethod
    def from_folds(
        cls,
        examples: Examples,
        folds: Iterable[tuple[NDArray[np.bool_], Tensor]],
        *,
        losses: NDArray[np.float64] | None = None,
    ) -> FoldTargets:
        """Collect the outputs of models on what they left out.

        Args:
            examples: all training examples.
            folds: for each model, which examples it was trained without, and its outputs on these.
            losses: [n] the privacy loss of each example, if it is known.
        """
        outputs, rows, models = [], [], []
        for model, (left_out, values) in enumerate(folds):
            own = values.double()
            own = own.log_softmax(dim=1) if examples.has_classes else own.reshape(len(own), -1)
            outputs.append(own.float().cpu().numpy())
            rows.append(np.flatnonzero(left_out))
            models.append(np.full(len(rows[-1]), model))
        if not outputs:
            raise InputError("`folds` must hold at least one model; got none.")
        return cls(
            examples.ids,
            np.concatenate(outputs),
            np.concatenate(rows),
            np.concatenate(models),
            fingerprints(examples),
            examples.strata,
            losses,
        )

    def write(self, path: str | Path) -> None:
        """Write a sealed folder."""
        with create(Path(path), _KIND) as draft:
            self.write_into(draft)

    def write_into(self, draft: Draft) -> None:
        """Write into a folder that holds other things too, such as a calibration."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _SHAPES}
        draft.tensors(_FILE, arrays if self.losses is None else arrays | {"losses": self.losses})
        draft.document(_FILE, {"ids": self.ids.tolist()})

    def without(self, ids: Ids) -> FoldTargets:
        """The outputs on all examples but these; the models were still trained on them."""
        keep = ~np.isin(self.ids, ids)
        pairs, position = keep[self.rows], np.cumsum(keep) - 1
        return FoldTargets(
            self.ids[keep],
            self.outputs[pairs],
            position[self.rows[pairs]],
            self.models[pairs],
            self.fingerprints[keep],
            self.labels[keep],
            None if self.losses is None else self.losses[keep],
        )

    def joined(self, other: FoldTargets) -> FoldTargets:
        """The outputs of the models of both, which are on the same examples."""
        if not np.array_equal(self.ids, other.ids) or not np.array_equal(
            self.fingerprints, other.fingerprints
        ):
            raise InputError("Two sets of fold models must be on the same examples.")
        return replace(
            self,
            outputs=np.concatenate([self.outputs, other.outputs]),
            rows=np.concatenate([self.rows, other.rows]),
            models=np.concatenate([self.models, other.models + self.models.max(initial=-1) + 1]),
        )

    def wrong_answers(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[n] the share of the models that never saw an example that get its class wrong, and [n] how many they are."""
        wrong, n = self.outputs.argmax(axis=1) != self.labels[self.rows], len(self.ids)
        models = np.bincount(self.rows, minlength=n).astype(np.float64)
        return np.bincount(self.rows, weights=wrong, minlength=n) / np.maximum(models, 1.0), models

    def losses_of(self, ids: Ids) -> NDArray[np.float64]:
        """The privacy losses of some examples, in their order."""
        if self.losses is None:
            raise DataError(
                "Expected folds with the privacy losses of the examples, as a calibration has them."
            )
        return self.losses[positions_of(ids, self.ids, what="the folds")]

    def of(self, examples: Examples, removed: Ids | None = None) -> Tensor:
        """The outputs for some examples, in their order; other data are refused.

        Each example gets the output of the model whose training data resemble most what stays after the request: the
        shares that were left out of its class, and of the equally hard examples of its class, are closest to those
        that the request removes. A model that also misses most of the class would be too unsure about the example, and
        one that saw all others as hard as it too sure.

        Args:
            examples: the examples in question.
            removed: ids of all examples that the request removes; these examples by default.
        """
        unknown = ~np.isin(examples.ids, self.ids)
        if unknown.any():
            raise DataError(
                f"Expected outputs of fold models on all {len(unknown)} examples to forget; {unknown.sum()} have none, "
                f"the first is id {examples.ids[unknown][0]}. Are they folds of other data?"
            )
        rows = positions_of(examples.ids, self.ids, what="the folds")
        differ = self.fingerprints[rows] != fingerprints(examples)
        if differ.any():
            raise DataError(
                f"The fold models were trained on other data: input or label of {differ.sum()} of {len(rows)} examples "
                f"to forget differ, the first is id {examples.ids[differ][0]}. Make the folds anew for these data."
            )
        pairs = self._nearest(np.isin(self.ids, examples.ids if removed is None else removed))[rows]
        seen = pairs < 0
        if seen.any():
            raise DataError(
                f"Expected fold models that never saw the examples to forget; {seen.sum()} of {len(rows)} are in every "
                f"model's training data, the first is id {examples.ids[seen][0]}. Use more folds."
            )
        return torch.from_numpy(self.outputs[pairs])

    def _nearest(self, removed: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[n] for each example the pair with the closest model, ties at random; -1 if no model left it out."""
        left_out = np.zeros((int(self.models.max(initial=-1)) + 1, len(self.ids)), bool)
        left_out[self.models, self.rows] = True
        distance = np.zeros(len(self.rows))
        alike = [] if self.losses is None else [equally_hard(self.losses, self.labels)]
        for groups in (self.labels, *alike):
            differences = shares_removed(groups, left_out) - shares_removed(groups, removed)
            distance += np.abs(differences)[self.models, self.rows]
        ties = np.random.default_rng(_SEED).random(len(distance))
        order = np.lexsort((ties, distance.round(_DIGITS), self.rows))[::-1]
        nearest = np.full(len(self.ids), -1)
        nearest[self.rows[order]] = order  # the closest pair of an example is written last
        return nearest


def has_fold_targets(folder: Folder) -> bool:
    """Whether the outputs of fold models are in this folder."""
    return folder.has(f"{_FILE}.safetensors")


def read_fold_targets(path: Path) -> FoldTargets:
    """Read the folder that `FoldTargets.write` wrote, or a calibration."""
    folder = open_folder(path)
    if not has_fold_targets(folder):
        raise RunFolderError(
            f"Expected a folder with outputs of fold models, such as a calibration; {path} is of kind {folder.kind!r} "
            "and has none."
        )
    arrays = folder.tensors(_FILE, **_SHAPES)
    ids = as_ids(folder.record(_FILE, _Ids).ids)
    pairs = {name: arrays.pop(name) for name in ("outputs", "rows", "models")}
    examples, n = pairs["rows"], len(ids)
    if any(len(array) != len(examples) for array in pairs.values()) or not _within(examples, n):
        raise DataError(f"{path} is damaged: its outputs are not those of models on its examples.")
    if any(len(array) != n for array in arrays.values()) or not _within(arrays["labels"], _MOST_CLASSES):
        raise DataError(f"{path} is damaged: its ids, classes and fingerprints are not equally many.")
    if not _within(pairs["models"], len(examples)):
        raise DataError(f"{path} is damaged: its outputs are of models that it does not have.")
    return FoldTargets(
        ids,
        **pairs,
        fingerprints=arrays["fingerprints"],
        labels=arrays["labels"],
        losses=arrays.get("losses"),
    )


def _within(values: NDArray[np.int64], end: int) -> bool:
    """Whether all values are from 0 to below the end."""
    return bool(((values >= 0) & (values < end)).all())


@torch.no_grad()
def outputs_on(model: nn.Module, examples: Examples) -> Tensor | None:
    """[n, outputs] of a model on some examples, in evaluation mode; None if they are not numbers."""
    parts = []
    with evaluating(model):
        for batch in examples.batches(_BATCH):
            inputs, _ = moved(batch, device_of(model))
            try:
                outputs = logits_of(call(model, inputs))
            except InputError:  # the task has a loss of its own for outputs of another structure
                return None
            parts.append(outputs.reshape(len(outputs), -1).cpu())
    return torch.cat(parts) if len({part.shape[1] for part in parts}) == 1 else None


def fingerprints(examples: Examples) -> NDArray[np.int64]:
    """A hash of input and label of each example."""
    hashes = []
    for inputs, labels in examples.batches(_BATCH):
        tensors = [*tensors_of(inputs), *tensors_of(labels)]
        hashes += [_hash(tensor[row] for tensor in tensors) for row in range(size_of(inputs))]
    return np.array(hashes, dtype=np.int64)


def _hash(tensors: Iterable[Tensor]) -> int:
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(content.digest()[:8], "big") >> 1
