"""Gaussian noise on chosen training inputs, kept so that its influence on the model can be measured later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.data import Examples
from remanence.storage import Draft, Folder
from remanence.tasks.randomness import generator
from remanence.types import Ids

VARIANCE = 0.062
"""The paper's σ², on the scale of the inputs as the network sees them."""
_FILE = "poison"


@dataclass(frozen=True, eq=False)
class Poison:
    """The noise that was added to each poisoned example.

    Args:
        ids: whose inputs carry noise.
        noise: [len(ids), *shape of an input], on the scale of the inputs as the network sees them.
        variance: of the normal distribution that every entry of the noise was drawn from.
    """

    ids: Ids
    noise: Tensor
    variance: float

    def applied(self, examples: Examples) -> Examples:
        """The same examples, those with these ids poisoned; ids that are not among them are left out."""
        present = np.flatnonzero(np.isin(self.ids, examples.ids))
        inputs = examples.inputs.clone()
        rows = torch.from_numpy(examples.positions(self.ids[present]))
        inputs[rows] += self.noise[torch.from_numpy(present)]
        return Examples(examples.ids, inputs, examples.labels, examples.class_names)

    def only(self, chosen: NDArray[np.bool_]) -> Poison:
        """The noise of some of the poisoned examples."""
        return Poison(self.ids[chosen], self.noise[torch.from_numpy(chosen)], self.variance)


def draw_poison(examples: Examples, ids: Ids, *, variance: float = VARIANCE, seed: int) -> Poison:
    """Noise for these examples: each one's depends on the seed and its id alone, not on who else is chosen."""
    shape = examples.input_shape
    examples.positions(ids)
    drawn = [
        torch.randn(shape, generator=generator(seed, "poison", str(example))) for example in ids.tolist()
    ]
    noise = torch.stack(drawn) if drawn else torch.zeros((0, *shape))
    return Poison(ids, noise.mul_(variance**0.5), variance)


def write_poison(draft: Draft, poison: Poison) -> None:
    """Keep the noise in a run's folder; the ids and the variance are in its settings."""
    draft.tensors(_FILE, {"noise": poison.noise.numpy()})


def read_poison(folder: Folder, ids: Sequence[int | str], variance: float) -> Poison | None:
    """The noise of a run, if it was poisoned."""
    if not ids:
        return None
    return Poison(np.asarray(ids), torch.from_numpy(folder.tensors(_FILE)["noise"]), variance)
