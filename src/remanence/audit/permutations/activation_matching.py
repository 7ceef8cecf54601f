"""Activation matching: the permutation that maximizes the correlation of two models' hidden units."""

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
from remanence.audit.permutations.symmetry import FIXED, ActivationSite, AxisLayout, Permutations, Symmetry
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
Observed: TypeAlias = dict[int, list[tuple[int, int, int, ActivationSite]]]
"""Operation -> (node, axis, segment, site) of the units that are observed at its output."""
Place: TypeAlias = tuple[int, int, int, int]
"""Node, operation, axis, segment."""


def match_activations(
    reference: nn.Module, model: nn.Module, symmetry: Symmetry, inputs: Tensor
) -> Permutations:
    """Maximize the sum of the units' correlations on these inputs: one assignment per tree, no iteration.

    Units are observed wherever they appear, before and after nonlinearities. The correlation of a constant unit is 0.
    """
    observed = _observed(symmetry)
    sums: dict[Place, _Correlation] = {}
    for batch in torch.split(inputs, _BATCH):
        left, right = (_activations(side, observed, batch) for side in (reference, model))
        for place, units in left.items():
            sums.setdefault(place, _Correlation()).add(units, right[place])
    gains: dict[int, NDArray[np.float64]] = {}
    for (node, *_), correlation in sums.items():
        table = correlation.table()
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

    def add(self, left: Tensor, right: Tensor) -> None:
        """Add activations [units, samples] of both models."""
        left, right = left.double(), right.double()
        self.n += left.shape[1]
        self.products = self.products + left @ right.T
        both = torch.stack([left, right])
        self.sums = self.sums + both.sum(dim=2)
        self.squares = self.squares + both.square().sum(dim=2)

    def table(self) -> NDArray[np.float64]:
        mean = self.sums / self.n
        deviation = (self.squares / self.n - mean.square()).clamp_min(0).sqrt()
        covariance = self.products / self.n - mean[0][:, None] * mean[1][None]
        scale = deviation[0][:, None] * deviation[1][None]
        correlation = torch.where(scale > 1e-12, covariance / scale.clamp_min(1e-12), torch.zeros_like(scale))
        table: NDArray[np.float64] = correlation.numpy()
        return table


def _observed(symmetry: Symmetry) -> Observed:
    """By operation: the nodes to observe, along which axis and segment. Views are skipped."""
    observed: Observed = {}
    for site in symmetry.sites:
        for axis, layout in enumerate(site.layouts) if site.operation not in _VIEWS else ():
            for part, segment in enumerate(layout):
                inside = tuple(node for node, _ in segment if node != FIXED)
                if inside and symmetry.path(inside[-1]) == inside:
                    observed.setdefault(site.count, []).append((inside[-1], axis, part, site))
    return observed


def _activations(model: nn.Module, observed: Observed, batch: Tensor) -> dict[Place, Tensor]:
    with evaluating(model), _ActivationRecorder(observed) as recorder:
        model(batch)
    activations: dict[Place, Tensor] = recorder.activations
    return activations


class _ActivationRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, observed: Observed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observed, self.count = observed, 0
        self.activations: dict[Place, Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for node, axis, part, site in self.observed.get(self.count, ()):
            if func._schema.name.removeprefix("aten::") != site.operation:
                raise InputError(
                    "The model must run the same operations for every batch to match its activations; it does not. "
                    "Match its weights instead."
                )
            output = next(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
            self.activations[node, self.count, axis, part] = _units(
                output.detach(), axis, site.layouts[axis], part
            )
        self.count += 1
        return result


def _units(tensor: Tensor, axis: int, layout: AxisLayout, part: int) -> Tensor:
    """The units of one segment, [units, samples]."""
    starts = np.cumsum([0, *(math.prod(size for _, size in segment) for segment in layout)]).tolist()
    sizes = [size for _, size in layout[part]]
    rows = tensor.movedim(axis, 0)[starts[part] : starts[part + 1]].reshape(*sizes, -1)
    inside = [i for i, (node, _) in enumerate(layout[part]) if node != FIXED]
    rest = [i for i in range(len(sizes)) if i not in inside]
    n = math.prod(sizes[i] for i in inside)
    return rows.permute(*inside, *rest, len(sizes)).reshape(n, -1)
