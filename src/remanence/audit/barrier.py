"""Loss barriers: how far the loss rises on the straight line between two models' weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.audit.permutations import check_same_shapes, match_permutations
from remanence.batches import call, device_of, moved, size_of
from remanence.data import Examples
from remanence.errors import InputError, NumericalError
from remanence.types import check_choice

Match = Literal["weights", "activations", "none"]
Data = Mapping[str, Examples | Sequence[Examples]]
"""Subsets by name; subsets that have pieces in common share the work."""
Progress = Callable[[int, int], None]
"""(points done, points expected) -> None."""
POINTS = 25
ROUNDS = 3
_BATCH = 256
_MATCHING_EXAMPLES = 256


@dataclass(frozen=True, eq=False)
class Barrier:
    """The loss along the line between two models, and its rise above the straight line between the ends' losses.

    Args:
        places: positions on the line, from 0 (the first model) to 1 (the second), increasing.
        losses: mean loss there; for a cross-entropy, in nats.
    """

    places: NDArray[np.float64]
    losses: NDArray[np.float64]

    @property
    def rise(self) -> NDArray[np.float64]:
        """The loss minus the linear interpolation of the ends' losses, at every position."""
        chord = (1 - self.places) * self.losses[0] + self.places * self.losses[-1]
        return np.asarray(self.losses - chord)

    @property
    def value(self) -> float:
        """The barrier: the largest rise; at least 0, the value at the ends."""
        return float(self.rise.max())

    @property
    def place(self) -> float:
        """The position of the largest rise."""
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

    Statement: max over t in [0, 1] of L((1−t)·a + t·b) − (1−t)·L(a) − t·L(b), L the mean loss on the data.

    Args:
        a: one end of the line.
        b: the other, of the same shapes.
        data: the examples that the loss is computed on.
        match: how the hidden units of `b` are first matched to those of `a` (`match_permutations`), or `none`.
        statistics: training data on which BatchNorm's statistics are estimated again at every point, including the ends
            (averaged statistics of two models would show barriers that do not exist); `data` by default.
        points: positions on an even grid, including the ends.
        rounds: how often the grid is refined around the maximum, with half the spacing.
        seed: random seed of the matching.

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
    """`loss_barrier` on several subsets at once: one pass along the line, refined around each subset's maximum."""
    check_choice("match", match, ("weights", "activations", "none"))
    check_same_shapes(a, b)
    if points < 3:
        raise InputError(f"`points` must be at least 3: the ends and one in between; got {points}.")
    parts = {name: [part] if isinstance(part, Examples) else list(part) for name, part in data.items()}
    pieces = [piece for subset in parts.values() for piece in subset]
    if not pieces or not all(map(len, pieces)):
        raise InputError("Every subset of `data` must have examples; at least one is empty.")
    batch_norm_data = statistics if statistics is not None else pieces[0]
    if match != "none":
        b = _matched(a, b, batch_norm_data, match, seed)
    line = _Line(a, b, batch_norm_data)
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


def _matched(
    a: nn.Module, b: nn.Module, examples: Examples, match: Literal["weights", "activations"], seed: int
) -> nn.Module:
    """`b` with its units matched to those of `a`; the search runs on the CPU, wherever the models are."""
    inputs, _ = examples.batch(torch.arange(min(_MATCHING_EXAMPLES, len(examples))))
    if not isinstance(inputs, Tensor):
        raise InputError(
            f"Hidden units can only be matched for models with one tensor as input; got {type(inputs).__name__}. "
            "Set `match` to 'none'."
        )
    device = device_of(b)
    if device.type == "cpu":
        return match_permutations(a, b, inputs, by=match, seed=seed)
    near_a, near_b = (copy.deepcopy(model).cpu() for model in (a, b))
    return match_permutations(near_a, near_b, inputs, by=match, seed=seed).to(device)


def _barrier(losses: Mapping[float, Mapping[str, float]], name: str) -> Barrier:
    places = sorted(losses)
    return Barrier(np.array(places), np.array([losses[place][name] for place in places]))


class _Line:
    """The models on the line between two models."""

    def __init__(self, a: nn.Module, b: nn.Module, statistics: Examples) -> None:
        self.between = copy.deepcopy(a).eval()
        self.ends = [_tensors(model) for model in (a, b)]
        self.norms = [
            module
            for module in self.between.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None
        ]
        # in the original order a batch could hold a single class, which makes the mean variance too small
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(statistics)))
        self.statistics, self.order = statistics, order if self.norms else order[:0]
        self.device = device_of(a)

    @torch.no_grad()
    def losses(self, place: float, parts: Mapping[str, Sequence[Examples]]) -> dict[str, float]:
        """Mean loss of the model at this position, on every subset."""
        for name, tensor in _tensors(self.between).items():
            start, end = (tensors[name] for tensors in self.ends)
            tensor.copy_(torch.lerp(start, end, place) if tensor.is_floating_point() else start)
        self._estimate_batch_norm()
        sums: dict[int, float] = {}
        for piece in (piece for subset in parts.values() for piece in subset):
            if id(piece) not in sums:
                sums[id(piece)] = _summed_loss(self.between, piece)
        means = {
            name: sum(sums[id(piece)] for piece in subset) / sum(map(len, subset))
            for name, subset in parts.items()
        }
        if not all(np.isfinite(list(means.values()))):
            raise NumericalError(f"The loss is not finite at {place:.3f} of the way between the two models.")
        return means

    def _estimate_batch_norm(self) -> None:
        """Averages over one pass; everything but BatchNorm stays in evaluation mode."""
        for norm in self.norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.train()
        for rows in torch.split(self.order, _BATCH) if self.norms else ():
            call(self.between, moved(self.statistics.batch(rows)[0], self.device))
        for norm in self.norms:
            norm.eval()


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def _summed_loss(model: nn.Module, examples: Examples) -> float:
    device, total = device_of(model), 0.0
    for batch in examples.batches(_BATCH):
        inputs, labels = moved(batch, device)
        losses = examples.readout.losses(call(model, inputs), labels, size_of(labels))
        total += float(losses.double().sum())
    return total
