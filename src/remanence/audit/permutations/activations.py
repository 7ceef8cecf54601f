"""Activation matching: the permutation under which two models' hidden units answer most alike."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remanence.audit.permutations.assignment import assign
from remanence.audit.permutations.symmetry import FIXED, Layout, Permutations, Site, Symmetry
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import evaluating

_BATCH = 64
_VIEWS = (
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "permute",
    "detach",
    "clone",
    "alias",
    "expand",
    "unsqueeze",
)
Watched: TypeAlias = dict[int, list[tuple[int, int, int, Site]]]
"""Operation -> (node, axis, segment, site) of what is watched at its output."""
Place: TypeAlias = tuple[int, int, int, int]
"""Node, operation, axis, segment."""


def match_activations(
    reference: nn.Module, model: nn.Module, symmetry: Symmetry, inputs: Tensor
) -> Permutations:
    """Maximise the sum of the units' correlations over these inputs; one assignment a tree, no iteration.

    Units are watched wherever they appear, before and after nonlinearities. One that never changes correlates with
    nothing.
    """
    watched = _watched(symmetry)
    sums: dict[Place, _Correlation] = {}
    for batch in torch.split(inputs, _BATCH):
        ours, theirs = (_seen(each, watched, batch) for each in (reference, model))
        for place, rows in ours.items():
            sums.setdefault(place, _Correlation()).add(rows, theirs[place])
    gains: dict[int, NDArray[np.float64]] = {}
    for (node, *_), each in sums.items():
        table = each.table()
        gains[node] = gains[node] + table if node in gains else table
    chosen = symmetry.identity()
    for root in symmetry.roots:
        chosen |= assign(symmetry, root, gains)
    return chosen


class _Correlation:
    """Correlations of two models' units, added up over batches."""

    def __init__(self) -> None:
        self.n = 0
        self.products: Any = 0.0
        self.sums: Any = 0.0
        self.squares: Any = 0.0

    def add(self, ours: Tensor, theirs: Tensor) -> None:
        """Units by samples, of each model."""
        ours, theirs = ours.double(), theirs.double()
        self.n += ours.shape[1]
        self.products = self.products + ours @ theirs.T
        both = torch.stack([ours, theirs])
        self.sums = self.sums + both.sum(dim=2)
        self.squares = self.squares + both.square().sum(dim=2)

    def table(self) -> NDArray[np.float64]:
        """[N, N]."""
        mean = self.sums / self.n
        deviation = (self.squares / self.n - mean.square()).clamp_min(0).sqrt()
        covariance = self.products / self.n - mean[0][:, None] * mean[1][None]
        scale = deviation[0][:, None] * deviation[1][None]
        found = torch.where(scale > 1e-12, covariance / scale.clamp_min(1e-12), torch.zeros_like(scale))
        table: NDArray[np.float64] = found.numpy()
        return table


def _watched(symmetry: Symmetry) -> Watched:
    """By operation: the nodes to watch there, along which axis and segment. Mere views are passed over."""
    watched: Watched = {}
    for site in symmetry.sites:
        for axis, layout in enumerate(site.label) if site.operation not in _VIEWS else ():
            for part, segment in enumerate(layout):
                inside = tuple(node for node, _ in segment if node != FIXED)
                if inside and symmetry.path(inside[-1]) == inside:
                    watched.setdefault(site.count, []).append((inside[-1], axis, part, site))
    return watched


def _seen(model: nn.Module, watched: Watched, batch: Tensor) -> dict[Place, Tensor]:
    with evaluating(model), _Watch(watched) as watch:
        model(batch)
    seen: dict[Place, Tensor] = watch.seen
    return seen


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, watched: Watched) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watched, self.count = watched, 0
        self.seen: dict[Place, Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for node, axis, part, site in self.watched.get(self.count, ()):
            if func._schema.name.removeprefix("aten::") != site.operation:
                raise InputError(
                    "The model does other operations for other batches; its activations cannot be matched. "
                    "Match its weights instead."
                )
            output = next(each for each in tree_leaves(result) if isinstance(each, Tensor))
            self.seen[node, self.count, axis, part] = _units(output.detach(), axis, site.label[axis], part)
        self.count += 1
        return result


def _units(tensor: Tensor, axis: int, layout: Layout, part: int) -> Tensor:
    """The units of one segment by samples."""
    starts = np.cumsum([0, *(math.prod(size for _, size in segment) for segment in layout)]).tolist()
    sizes = [size for _, size in layout[part]]
    rows = tensor.movedim(axis, 0)[starts[part] : starts[part + 1]].reshape(*sizes, -1)
    inside = [i for i, (node, _) in enumerate(layout[part]) if node != FIXED]
    rest = [i for i in range(len(sizes)) if i not in inside]
    n = math.prod(sizes[i] for i in inside)
    return rows.permute(*inside, *rest, len(sizes)).reshape(n, -1)
