"""Outputs of models on examples that they were not trained on, kept in a sealed folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
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
from remanence.storage import Draft, Folder, create, open_folder
from remanence.types import Ids, as_ids, positions_of

_KIND = "fold-targets"
_FILE = "fold_targets"
_BATCH = 256


@dataclass(frozen=True)
class _Ids:
    """What the document of a folder with targets holds."""

    ids: tuple[int | str, ...]


@dataclass(frozen=True, eq=False)
class FoldTargets:
    """What a model that never saw an example says about it.

    For each example one model is drawn from those that were trained without it. The mean of several models would be
    less sure than any of them: a model that is drawn towards it is called never trained on too often.

    Args:
        ids: the examples.
        outputs: [n, outputs] logarithms of the probabilities where the outputs are classes, else the outputs; NaN for
            an example that every model was trained on.
        fingerprints: a hash of input and label of each example, by which other data are recognized.
        losses: [n] the privacy loss of each example, for methods that treat examples by their difficulty.
    """

    ids: Ids
    outputs: NDArray[np.float32]
    fingerprints: NDArray[np.int64]
    losses: NDArray[np.float64] | None = None

    @classmethod
    def drawn(
        cls,
        examples: Examples,
        folds: Iterable[tuple[NDArray[np.bool_], Tensor]],
        *,
        seed: int = 0,
        losses: NDArray[np.float64] | None = None,
    ) -> FoldTargets:
        """Draw one model for each example.

        Args:
            examples: all training examples.
            folds: for each model, which examples it was trained without, and its outputs on these.
            seed: random seed of the draw.
            losses: [n] the privacy loss of each example, if it is known.
        """
        chosen: NDArray[np.float32] | None = None
        count, rng = np.zeros(len(examples)), np.random.default_rng(seed)
        for left_out, outputs in folds:
            values = outputs.double()
            values = values.log_softmax(dim=1) if examples.has_classes else values.reshape(len(values), -1)
            if chosen is None:
                chosen = np.full((len(examples), values.shape[1]), np.nan, np.float32)
            count[left_out] += 1
            takes = rng.random(len(examples))[left_out] < 1 / count[left_out]
            chosen[np.flatnonzero(left_out)[takes]] = values.cpu().numpy()[takes]
        if chosen is None:
            raise InputError("`folds` must hold at least one model; got none.")
        return cls(examples.ids, chosen, fingerprints(examples), losses)

    def write(self, path: str | Path) -> None:
        """Write a sealed folder."""
        with create(Path(path), _KIND) as draft:
            self.write_into(draft)

    def write_into(self, draft: Draft) -> None:
        """Write into a folder that holds other things too, such as a calibration."""
        arrays: dict[str, NDArray[Any]] = {"outputs": self.outputs, "fingerprints": self.fingerprints}
        draft.tensors(_FILE, arrays if self.losses is None else arrays | {"losses": self.losses})
        draft.document(_FILE, {"ids": self.ids.tolist()})

    def without(self, ids: Ids) -> FoldTargets:
        """The outputs on all examples but these; the models were still trained on them."""
        keep = ~np.isin(self.ids, ids)
        losses = None if self.losses is None else self.losses[keep]
        return FoldTargets(self.ids[keep], self.outputs[keep], self.fingerprints[keep], losses)

    def losses_of(self, ids: Ids) -> NDArray[np.float64]:
        """The privacy losses of some examples, in their order."""
        if self.losses is None:
            raise DataError(
                "Expected folds with the privacy losses of the examples, as a calibration has them."
            )
        return self.losses[positions_of(ids, self.ids, what="the folds")]

    def of(self, examples: Examples) -> Tensor:
        """The outputs for some examples, in their order; other data are refused."""
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
        outputs = self.outputs[rows]
        seen = ~np.isfinite(outputs).all(axis=1)
        if seen.any():
            raise DataError(
                f"Expected fold models that never saw the examples to forget; {seen.sum()} of {len(rows)} are in every "
                f"model's training data, the first is id {examples.ids[seen][0]}. Use more folds."
            )
        return torch.from_numpy(outputs)


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
    arrays = folder.tensors(_FILE, outputs="f2", fingerprints="i1")
    ids = as_ids(folder.record(_FILE, _Ids).ids)
    if any(len(array) != len(ids) for array in arrays.values()):
        raise DataError(f"{path} is damaged: its ids, outputs and fingerprints are not equally many.")
    return FoldTargets(ids, arrays["outputs"], arrays["fingerprints"], arrays.get("losses"))


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
