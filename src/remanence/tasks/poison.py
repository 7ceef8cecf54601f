"""Gaussian noise on some training inputs, saved so that its influence on the model can be measured later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.data import Examples
from remanence.errors import RunFolderError
from remanence.storage import Draft, Folder
from remanence.tasks.randomness import generator
from remanence.types import Ids, as_ids

VARIANCE = 0.062
"""The σ² of the paper, on the scale of the network's inputs."""
_FILE = "poison"


@dataclass(frozen=True, eq=False)
class Poison:
    """The noise that was added to each poisoned example.

    Args:
        ids: ids of the poisoned examples.
        noise: [len(ids), *input_shape], the noise on each input.
        variance: variance of the noise.
    """

    ids: Ids
    noise: Tensor
    variance: float

    def applied(self, examples: Examples) -> Examples:
        """Add the noise to the poisoned examples among these."""
        present = np.flatnonzero(np.isin(self.ids, examples.ids))
        inputs = examples.inputs.clone()
        rows = torch.from_numpy(examples.positions(self.ids[present]))
        inputs[rows] += self.noise[torch.from_numpy(present)]
        return examples.with_inputs(inputs)

    def only(self, chosen: NDArray[np.bool_]) -> Poison:
        """The noise of a subset of the poisoned examples, given as a mask."""
        return Poison(self.ids[chosen], self.noise[torch.from_numpy(chosen)], self.variance)


def draw_poison(examples: Examples, ids: Ids, *, variance: float = VARIANCE, seed: int) -> Poison:
    """Draw noise for these examples. The noise of an example depends only on the seed and its id.

    Args:
        examples: the training examples.
        ids: ids of the examples to poison.
        variance: variance of the noise.
        seed: random seed of the noise.
    """
    shape = examples.input_shape
    examples.positions(ids)  # refuses unknown ids
    drawn = [
        torch.randn(shape, generator=generator(seed, "poison", str(example_id)))
        for example_id in ids.tolist()
    ]
    noise = torch.stack(drawn) if drawn else torch.zeros((0, *shape))
    return Poison(ids, noise.mul_(variance**0.5), variance)


def write_poison(draft: Draft, poison: Poison) -> None:
    """Write the noise into the folder of a run; the ids and the variance are in its settings."""
    draft.tensors(_FILE, {"noise": poison.noise.numpy()})


def read_poison(folder: Folder, ids: Sequence[int | str], variance: float) -> Poison | None:
    """Read the noise of a run; None if it was not poisoned."""
    if not ids:
        return None
    noise = torch.from_numpy(folder.tensors(_FILE)["noise"])
    if len(noise) != len(ids):
        raise RunFolderError(
            f"{folder.path} is damaged: it has {len(ids)} poisoned examples and noise for {len(noise)}."
        )
    return Poison(as_ids(ids), noise, variance)
