"""Add up squared norms as gradients arrive; parameters with several uses wait for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from remanence.gradients.layers.rule import ParameterUse, chunks, square_sum
from remanence.gradients.precision import widest_float, without_autocast
from remanence.gradients.tracker import UseTracker


class NormAccumulator:
    """The squared gradient norm of every example, by parameter, in double precision where the device has it.

    The norm of a parameter with one use is computed as soon as that use's gradient arrives. A parameter used several
    times, or through a tensor derived from it, gets the norm of the *sum*: its uses are kept until
    the backward pass is over.
    """

    def __init__(self, names: Mapping[int, str], n: int, device: torch.device) -> None:
        self.names, self.n, self.device = names, n, device
        self.dtype = widest_float(device)
        self.table: dict[str, Tensor] = {}
        self.tracker: UseTracker
        self.seen: set[int] = set()
        self._rows: dict[int, Tensor] = {}
        self._single_use: set[int] | None = None

    def add(self, use: ParameterUse) -> None:
        """Compute the norms of parameters that are used here alone; free the activations if nothing is left."""
        single = self.single_use_parameters()
        roles = tuple(role for role, source in use.sources.items() if source in single)
        if roles:
            with without_autocast(self.device.type):
                values = use.rule.squared_norms(use, roles)
            for role in roles:
                self._rows[use.sources[role]] = values[role]
            use.sources = {role: source for role, source in use.sources.items() if source not in single}
        if not use.sources:
            use.release()

    def add_and_sum(self, use: ParameterUse) -> dict[str, Tensor]:
        """Compute the norms of a use whose rule also builds the batch's gradient, and return that."""
        roles = tuple(use.sources)
        values, summed = use.rule.norms_and_sums(use, roles)
        for role in roles:
            self._rows[use.sources[role]] = values[role]
        use.sources = {}
        use.release()
        return summed

    def finish(self) -> None:
        """Compute the norms of all uses that were kept, and drop the tracker, which refers to this accumulator."""
        self.single_use_parameters()
        kept = [use for use in self.tracker.uses if use.sources and use.reached]
        with without_autocast(self.device.type):
            for parameters in self._components(kept):
                self._add_together(parameters, self._uses_of(parameters, kept))
        self.tracker.release()
        del self.tracker
        self.table = self._stacked_rows()

    def _stacked_rows(self) -> dict[str, Tensor]:
        """All rows in double precision; zero where the loss depends on no use."""
        zero = torch.zeros(self.n, device=self.device)
        rows = [self._rows.get(key, zero) for key in self.names]
        widest = max((row.dtype for row in rows), key=lambda dtype: dtype.itemsize)
        stacked = torch.stack([row.to(widest) for row in rows]).to(self.dtype).clamp_min_(0)
        return dict(zip(self.names.values(), stacked, strict=True))

    def _uses_of(self, parameters: set[int], kept: list[ParameterUse]) -> list[ParameterUse]:
        return [use for use in kept if any(self._roots(s) & parameters for s in use.sources.values())]

    def single_use_parameters(self) -> set[int]:
        """Parameters with a single use and nothing derived from them."""
        if self._single_use is None:
            counts = Counter(
                root for use in self.tracker.uses for s in use.sources.values() for root in self._roots(s)
            )
            self.seen = set(counts)
            self._single_use = {
                key for key, count in counts.items() if count == 1 and key not in self._derived_roots()
            }
        return self._single_use

    def _derived_roots(self) -> set[int]:
        return {root for key in self.tracker.derived for root in self.tracker.parents[key]}

    def _roots(self, source: int) -> frozenset[int]:
        return self.tracker.parents[source]

    def _components(self, kept: list[ParameterUse]) -> list[set[int]]:
        """Sets of parameters that belong together because a tensor is derived from several of them."""
        groups: list[set[int]] = []
        for roots in dict.fromkeys(self._roots(source) for use in kept for source in use.sources.values()):
            joined = set(roots)
            for group in [g for g in groups if g & joined]:
                groups.remove(group)
                joined |= group
            groups.append(joined)
        return groups

    def _add_together(self, parameters: set[int], uses: list[ParameterUse]) -> None:
        numel = sum(self.tracker.tracked[key].numel() for key in parameters)
        parts: dict[int, list[Tensor]] = {}
        for start, stop in chunks(self.n, 2 * numel, self.tracker.tracked[next(iter(parameters))]):
            for key, gradient in self._gradients(parameters, uses, start, stop).items():
                parts.setdefault(key, []).append(square_sum(gradient))
        self._rows |= {key: torch.cat(pieces) for key, pieces in parts.items()}

    def _gradients(
        self, parameters: set[int], uses: list[ParameterUse], start: int, stop: int
    ) -> dict[int, Tensor]:
        """Gradients [stop - start, *shape] of parameters, all their uses added up."""
        totals: dict[int, Tensor] = {}
        for use in uses:
            roles = tuple(r for r, s in use.sources.items() if self._roots(s) & parameters)
            for role, gradient in use.rule.gradients(use, roles, start, stop).items():
                source = use.sources[role]
                totals[source] = totals[source] + gradient if source in totals else gradient
        return self._pulled_back(
            {key: self.tracker.roots[key] for key in self.names if key in parameters}, totals
        )

    def _pulled_back(self, parameters: dict[int, Tensor], totals: dict[int, Tensor]) -> dict[int, Tensor]:
        """Gradients of the parameters themselves, those of derived tensors propagated back to them."""
        gradients = {key: totals[key] for key in parameters if key in totals}
        through = [key for key in totals if key in self.tracker.derived]
        if not through:
            return gradients
        outputs = [self.tracker.derived[key] for key in through]
        cotangents = [totals[key].to(out.dtype) for key, out in zip(through, outputs, strict=True)]
        pulled = _batched_vjp(outputs, list(parameters.values()), cotangents)
        for key, gradient in zip(parameters, pulled, strict=True):
            if gradient is not None:
                gradients[key] = gradients[key] + gradient if key in gradients else gradient
        return gradients


def _batched_vjp(
    outputs: list[Tensor], inputs: list[Tensor], cotangents: list[Tensor]
) -> list[Tensor | None]:
    """The products of many cotangents with one Jacobian: at once where torch supports it, otherwise one by one."""
    try:
        return list(
            torch.autograd.grad(
                outputs, inputs, cotangents, is_grads_batched=True, retain_graph=True, allow_unused=True
            )
        )
    except RuntimeError:
        rows = [
            torch.autograd.grad(
                outputs, inputs, [c[i] for c in cotangents], retain_graph=True, allow_unused=True
            )
            for i in range(cotangents[0].shape[0])
        ]
        return [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
