"""Loss barriers: how far the loss rises on the straight line between two models' weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.audit.permutations import check_same_shapes, match_permutations
from remanence.data import Examples
from remanence.errors import InputError, NumericalError
from remanence.types import check_choice

Match = Literal["weights", "activations", "none"]
Data = Mapping[str, Examples | Sequence[Examples]]
"""Subsets by name; one given in several pieces shares the work with others that have the same pieces."""
Progress = Callable[[int, int], None]
"""(points done, points expected) -> None."""
POINTS = 25
ROUNDS = 3
_BATCH = 256
_MATCHED_ON = 256


@dataclass(frozen=True, eq=False)
class Barrier:
    """The loss along the line, and how far it rises above the chord between its ends.

    Args:
        places: where on the line, from 0 (the first model) to 1 (the second), increasing.
        losses: mean cross-entropy there, in nats.
    """

    places: NDArray[np.float64]
    losses: NDArray[np.float64]

    @property
    def rise(self) -> NDArray[np.float64]:
        """The loss minus the chord, at every place."""
        chord = (1 - self.places) * self.losses[0] + self.places * self.losses[-1]
        return np.asarray(self.losses - chord)

    @property
    def value(self) -> float:
        """The barrier: the largest rise; never below zero, which the ends have."""
        return float(self.rise.max())

    @property
    def place(self) -> float:
        """Where it is reached."""
        return float(self.places[self.rise.argmax()])


def loss_barrier(
    a: nn.Module,
    b: nn.Module,
    data: Examples,
    *,
    match: Match = "weights",
    statistics: Examples | None = None,
    points: int = POINTS,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Barrier:
    """The barrier between two models on some data, modulo permutation of hidden units.

    Statement: max over t in [0, 1] of L((1−t)·a + t·b) − (1−t)·L(a) − t·L(b), L the mean cross-entropy on the data.

    Args:
        a: one end of the line.
        b: the other, of the same shapes.
        data: what the loss is taken on.
        match: how the hidden units of `b` are first put where those of `a` are (`match_permutations`), or `none`.
        statistics: training data from which BatchNorm's statistics are estimated anew at every point, the ends too
            (averages of two models' statistics belong to no model and show barriers that are none); by default `data`.
        points: places on an even grid, the ends among them.
        rounds: how often the spacing around the maximum is then halved.
        seed: of the matching.

    Source: the paper, "Loss landscape analysis".
    """
    return loss_barriers(
        a, b, {"data": data}, match=match, statistics=statistics, points=points, rounds=rounds, seed=seed
    )["data"]


def loss_barriers(
    a: nn.Module,
    b: nn.Module,
    data: Data,
    *,
    match: Match = "weights",
    statistics: Examples | None = None,
    points: int = POINTS,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> dict[str, Barrier]:
    """`loss_barrier` on several subsets at once: one walk along the line, refined around each one's maximum."""
    check_choice("match", match, ("weights", "activations", "none"))
    check_same_shapes(a, b)
    if points < 3:
        raise InputError(f"`points` must be at least 3, the ends and one between; got {points}.")
    parts = {name: [each] if isinstance(each, Examples) else list(each) for name, each in data.items()}
    everything = [part for each in parts.values() for part in each]
    if not everything or not all(map(len, everything)):
        raise InputError("A barrier needs data: every subset must have examples.")
    known = statistics if statistics is not None else everything[0]
    if match != "none":
        b = match_permutations(a, b, known.inputs[:_MATCHED_ON], by=match, seed=seed)
    line = _Line(a, b, known)
    total = points + 2 * rounds
    losses: dict[float, dict[str, float]] = {}

    def visit(places: Sequence[float]) -> None:
        for place in places:
            if place not in losses:
                losses[place] = line.losses(place, parts)
                progress(len(losses), max(total, len(losses)))

    visit(np.linspace(0, 1, points).tolist())
    for halving in range(1, rounds + 1):
        spacing = 1 / (points - 1) / 2**halving
        tops = {_barrier(losses, name).place for name in parts}
        visit([place for top in sorted(tops) for place in (top - spacing, top + spacing) if 0 < place < 1])
    return {name: _barrier(losses, name) for name in parts}


def _barrier(losses: Mapping[float, Mapping[str, float]], name: str) -> Barrier:
    places = sorted(losses)
    return Barrier(np.array(places), np.array([losses[place][name] for place in places]))


class _Line:
    """The models between two models."""

    def __init__(self, a: nn.Module, b: nn.Module, statistics: Examples) -> None:
        self.between = copy.deepcopy(a).eval()
        self.ends = [_tensors(each) for each in (a, b)]
        self.norms = [
            module
            for module in self.between.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None
        ]
        # in their own order, batches could be all of one class, and their mean variance too small
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(statistics)))
        self.inputs = statistics.inputs[order] if self.norms else statistics.inputs[:0]

    @torch.no_grad()
    def losses(self, place: float, parts: Mapping[str, Sequence[Examples]]) -> dict[str, float]:
        """Mean cross-entropy on every subset, of the model at this place."""
        for name, tensor in _tensors(self.between).items():
            start, end = (each[name] for each in self.ends)
            tensor.copy_(torch.lerp(start, end, place) if tensor.is_floating_point() else start)
        self._estimate()
        sums: dict[int, float] = {}
        for part in (part for each in parts.values() for part in each):
            if id(part) not in sums:
                sums[id(part)] = _summed_loss(self.between, part)
        found = {
            name: sum(sums[id(part)] for part in each) / sum(map(len, each)) for name, each in parts.items()
        }
        if not all(np.isfinite(list(found.values()))):
            raise NumericalError(f"The loss is not finite at {place:.3f} of the way between the two models.")
        return found

    def _estimate(self) -> None:
        """BatchNorm's statistics afresh: plain averages over one pass, everything else in evaluation mode."""
        for norm in self.norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.train()
        for batch in torch.split(self.inputs, _BATCH) if self.norms else ():
            self.between(batch)
        for norm in self.norms:
            norm.eval()


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}


def _summed_loss(model: nn.Module, examples: Examples) -> float:
    batches = zip(torch.split(examples.inputs, _BATCH), torch.split(examples.labels, _BATCH), strict=True)
    return sum(
        float(F.cross_entropy(model(inputs), labels, reduction="none").double().sum())
        for inputs, labels in batches
    )
