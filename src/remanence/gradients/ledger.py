"""Adds up squared norms as uses arrive; parameters with several uses wait for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor

from remanence.gradients.precision import uncast
from remanence.gradients.use import Use, chunks, square_sum
from remanence.gradients.watch import Watch


class Ledger:
    """The squared gradient norm of every example, by parameter, in double precision where there is one.

    A parameter with one use is settled the moment that use's gradient arrives. A parameter used several
    times, or through a tensor derived from it, gets the norm of the *sum*: its uses are held until the
    backward pass is over.
    """

    def __init__(self, names: Mapping[int, str], n: int, device: torch.device) -> None:
        self.names, self.n, self.device = names, n, device
        self.kind = torch.float32 if device.type == "mps" else torch.float64
        self.table: dict[str, Tensor] = {}
        self.watch: Watch
        self.claimed: set[int] = set()
        self._rows: dict[int, Tensor] = {}
        self._alone: set[int] | None = None

    def arrive(self, use: Use) -> None:
        """Settle what can be settled now, and let go of the activations if nothing is left to do."""
        alone = self.lone_sources()
        roles = tuple(role for role, source in use.sources.items() if source in alone)
        if roles:
            with uncast(self.device.type):
                values = use.rule.squared_norms(use, roles)
            for role in roles:
                self._rows[use.sources[role]] = values[role]
            use.sources = {role: source for role, source in use.sources.items() if source not in alone}
        if not use.sources:
            use.release()

    def settle(self, use: Use) -> dict[str, Tensor]:
        """Settle a use whose rule also yields the batch's gradient, and return that."""
        roles = tuple(use.sources)
        values, summed = use.rule.norms_and_sums(use, roles)
        for role in roles:
            self._rows[use.sources[role]] = values[role]
        use.sources = {}
        use.release()
        return summed

    def finish(self) -> None:
        """Settle everything that was held, and let go of the watch, which knows this ledger."""
        self.lone_sources()
        held = [use for use in self.watch.uses if use.sources and use.reached]
        with uncast(self.device.type):
            for parameters in self._components(held):
                self._settle_together(parameters, self._uses_of(parameters, held))
        self.watch.release()
        del self.watch
        self.table = self._tabled()

    def _tabled(self) -> dict[str, Tensor]:
        """All rows at once in double precision; no use that the loss depends on means no gradient."""
        zero = torch.zeros(self.n, device=self.device)
        rows = [self._rows.get(key, zero) for key in self.names]
        widest = max((row.dtype for row in rows), key=lambda dtype: dtype.itemsize)
        stacked = torch.stack([row.to(widest) for row in rows]).to(self.kind).clamp_min_(0)
        return dict(zip(self.names.values(), stacked, strict=True))

    def _uses_of(self, parameters: set[int], held: list[Use]) -> list[Use]:
        return [use for use in held if any(self._roots(s) & parameters for s in use.sources.values())]

    def lone_sources(self) -> set[int]:
        """Parameters with a single use, nothing derived from them."""
        if self._alone is None:
            counts = Counter(
                root for use in self.watch.uses for s in use.sources.values() for root in self._roots(s)
            )
            self.claimed = set(counts)
            self._alone = {
                key for key, count in counts.items() if count == 1 and key not in self._derived_roots()
            }
        return self._alone

    def _derived_roots(self) -> set[int]:
        return {root for key in self.watch.derived for root in self.watch.parents[key]}

    def _roots(self, source: int) -> frozenset[int]:
        return self.watch.parents[source]

    def _components(self, held: list[Use]) -> list[set[int]]:
        """Sets of parameters that must be settled together because some tensor derives from several."""
        groups: list[set[int]] = []
        for roots in dict.fromkeys(self._roots(source) for use in held for source in use.sources.values()):
            joined = set(roots)
            for group in [g for g in groups if g & joined]:
                groups.remove(group)
                joined |= group
            groups.append(joined)
        return groups

    def _settle_together(self, parameters: set[int], uses: list[Use]) -> None:
        numel = sum(self.watch.watched[key].numel() for key in parameters)
        parts: dict[int, list[Tensor]] = {}
        for start, stop in chunks(self.n, 2 * numel, self.watch.watched[next(iter(parameters))]):
            for key, gradient in self._gradients(parameters, uses, start, stop).items():
                parts.setdefault(key, []).append(square_sum(gradient))
        self._rows |= {key: torch.cat(pieces) for key, pieces in parts.items()}

    def _gradients(self, parameters: set[int], uses: list[Use], start: int, stop: int) -> dict[int, Tensor]:
        """Gradients [stop - start, *shape] of parameters, all their uses added up."""
        totals: dict[int, Tensor] = {}
        for use in uses:
            roles = tuple(r for r, s in use.sources.items() if self._roots(s) & parameters)
            for role, gradient in use.rule.gradients(use, roles, start, stop).items():
                source = use.sources[role]
                totals[source] = totals[source] + gradient if source in totals else gradient
        return self._pulled_back(
            {key: self.watch.roots[key] for key in self.names if key in parameters}, totals
        )

    def _pulled_back(self, parameters: dict[int, Tensor], totals: dict[int, Tensor]) -> dict[int, Tensor]:
        """Gradients of the parameters themselves, those of derived tensors carried back to them."""
        found = {key: totals[key] for key in parameters if key in totals}
        through = [key for key in totals if key in self.watch.derived]
        if not through:
            return found
        outputs = [self.watch.derived[key] for key in through]
        cotangents = [totals[key].to(out.dtype) for key, out in zip(through, outputs, strict=True)]
        pulled = _batched_vjp(outputs, list(parameters.values()), cotangents)
        for key, gradient in zip(parameters, pulled, strict=True):
            if gradient is not None:
                found[key] = found[key] + gradient if key in found else gradient
        return found


def _batched_vjp(
    outputs: list[Tensor], inputs: list[Tensor], cotangents: list[Tensor]
) -> list[Tensor | None]:
    """The products of many cotangents with one Jacobian: at once where torch can, else one by one."""
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
