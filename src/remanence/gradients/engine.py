"""A model made ready for per-example norms: rehearse one example, follow with batches, answer to the loop."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from remanence.gradients.batches import Batch, call, rows, size_of, take, tensors_of
from remanence.gradients.coupling import refuse_batch_statistics, refuse_coupled
from remanence.gradients.formats import Formats, has_planes
from remanence.gradients.layout import DivergedError
from remanence.gradients.ledger import Ledger
from remanence.gradients.losses import ExampleLoss, example_losses
from remanence.gradients.reference import loop_squared_norms, squared_norms_of
from remanence.gradients.watch import Rehearsal, Script, Watch

Table = dict[str, Tensor]

RESCUE = 2.0**60
"""Squares of float32 leave their range for norms near 1e-20 and above 1e19: those are run again, scaled."""
TOO_SMALL = 1e-24
"""A squared norm below this may have lost digits to underflow."""


class FallbackWarning(UserWarning):
    """Part of a model takes a slower way; the result is exact all the same."""


@dataclass(frozen=True)
class Tolerance:
    """How far two computations of one squared norm may lie apart: a rule that is wrong is off by far more.

    Args:
        relative: of the value itself.
        share: of the example's total, since a parameter without influence has a gradient of rounding errors.
        floor: of the batch's largest, since a fitted example's gradient is one of rounding errors.
    """

    relative: float
    share: float
    floor: float

    @staticmethod
    def of(dtype: torch.dtype) -> Tolerance:
        """Wide for half precision, tight for double."""
        if dtype == torch.float64:
            return Tolerance(1e-7, 1e-10, 1e-14)
        return Tolerance(3e-3, 1e-5, 1e-8) if dtype == torch.float32 else Tolerance(0.1, 0.02, 1e-4)


@dataclass(eq=False)
class Rehearsed:
    """What a rehearsal left: the script, and the example's loss and squared norms by plain autograd."""

    script: Script
    loss: Tensor
    norms: Table
    checked: bool = False


@dataclass(eq=False)
class Engine:
    """Everything about a model that stays the same from batch to batch.

    Args:
        model: in the mode that the gradients are wanted in.
        loss: one number an example.
        parameters: what to differentiate by, by name.
        autocast: run the forward pass in this half precision.
        by_parameter: rescue each parameter's norm from underflow, not just the total.
    """

    model: nn.Module
    loss: ExampleLoss
    parameters: Mapping[str, Tensor]
    autocast: torch.dtype | None = None
    by_parameter: bool = False
    looped: bool = False
    rehearsals: dict[tuple[object, ...], Rehearsed] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.watched = {id(tensor): tensor for tensor in self.parameters.values()}
        self.names = {id(tensor): name for name, tensor in self.parameters.items()}
        others = [p for p in self.model.parameters() if p.requires_grad and id(p) not in self.watched]
        self.frozen = {id(p): p for p in others}
        self.claimed: set[str] = set()
        anchor = next(iter(self.parameters.values()))
        self.device, self.dtype = anchor.device, self.autocast or anchor.dtype
        self.formats = Formats(self.device.type == "cpu" and has_planes(self.model))

    def squared_norms(self, inputs: Batch, targets: Batch) -> Table:
        """Squared gradient norms of a batch's examples by parameter."""
        if not self.looped:
            try:
                return self._fast(inputs, targets)
            except DivergedError as problem:
                self._give_up(f"a batch takes another course than a single example ({problem})")
        return self._loop(inputs, targets)

    def rehearsed(self, inputs: Batch, targets: Batch) -> Rehearsed:
        """The rehearsal for inputs of this shape, held once."""
        key = tuple((tensor.shape[1:], tensor.dtype) for tensor in tensors_of((inputs, targets)))
        if key not in self.rehearsals:
            self.rehearsals[key] = self._rehearse(rows(inputs, 0, 1), rows(targets, 0, 1))
        return self.rehearsals[key]

    def _rehearse(self, x: Batch, y: Batch) -> Rehearsed:
        refuse_batch_statistics(self.model)
        mode = Rehearsal(self.watched, self.frozen)
        with torch.enable_grad(), self._casting():
            with mode:
                value = example_losses(self.loss, call(self.model, x), y, 1)
            return Rehearsed(mode.script, value.detach(), squared_norms_of(value, self.parameters))

    def _fast(self, inputs: Batch, targets: Batch) -> Table:
        rehearsed = self.rehearsed(inputs, targets)
        if size_of(inputs) == 1 and not rehearsed.checked:
            # one example shows no batch dimension, and its rehearsal was the answer
            return self._loop(inputs, targets)
        losses, table = self._first(rehearsed, inputs, targets)
        table = self._rescued(rehearsed.script, inputs, targets, table)
        if not rehearsed.checked:
            rehearsed.checked = True
            if not self._agrees(rehearsed, inputs, targets, losses, table):
                self._give_up("its result and the loop's disagree")
                return self.squared_norms(inputs, targets)
        return table

    def _first(self, rehearsed: Rehearsed, inputs: Batch, targets: Batch) -> tuple[Tensor, Table]:
        """Channels last where that is faster, unless the model's code cannot take it (a `view`, say)."""
        try:
            return self._follow(rehearsed.script, inputs, targets, 1.0)
        except RuntimeError:
            if rehearsed.checked or not self.formats.last:
                raise
            self.formats = Formats(last=False)
            return self._follow(rehearsed.script, inputs, targets, 1.0)

    def _follow(self, script: Script, inputs: Batch, targets: Batch, scale: float) -> tuple[Tensor, Table]:
        ledger = Ledger(self.names, size_of(inputs), self.device)
        losses = self.follow(ledger, script, inputs, targets, scale)
        if scale == 1:
            return losses, ledger.table
        return losses, {name: row / scale**2 for name, row in ledger.table.items()}

    def follow(
        self, ledger: Ledger, script: Script, inputs: Batch, targets: Batch, scale: float = 1.0
    ) -> Tensor:
        """One pass over a batch, its uses settled by the ledger; the losses."""
        n = size_of(inputs)
        inputs = self.formats.inputs(inputs)
        watch = Watch(self.watched, self.frozen, script, n, self.formats.values(self.watched), ledger.arrive)
        ledger.watch = watch
        with torch.enable_grad():
            with self._casting(), watch:
                losses = example_losses(self.loss, call(self.model, inputs), targets, n)
            watch.close()
            self._announce(watch)
            if losses.requires_grad:
                # a sum, since gradients given from outside make torch load its symbolic algebra first: two seconds
                torch.autograd.backward((losses if scale == 1 else losses * scale).sum())
        ledger.finish()
        self.claimed = {self.names[key] for key in ledger.claimed}
        return losses.detach()

    def _rescued(self, script: Script, inputs: Batch, targets: Batch, table: Table) -> Table:
        """Run again, scaled, the examples whose squares left the range of float32."""
        if self.dtype == torch.float64:
            return table
        total = torch.stack(list(table.values()))
        for scale, lost in ((RESCUE, self._too_small(total)), (1 / RESCUE, ~total.sum(0).isfinite())):
            chosen = lost.nonzero().flatten()
            if chosen.numel():
                part = take(inputs, chosen), take(targets, chosen)
                again = self._follow(script, *part, scale)[1]
                for name, row in table.items():
                    redo = (
                        (row[chosen] < TOO_SMALL) if scale > 1 else torch.ones_like(chosen, dtype=torch.bool)
                    )
                    row[chosen[redo]] = again[name][redo]
        return table

    def _too_small(self, rows_by_parameter: Tensor) -> Tensor:
        if self.by_parameter:
            return (rows_by_parameter < TOO_SMALL).any(0)
        return rows_by_parameter.sum(0) < TOO_SMALL

    def _agrees(
        self, rehearsed: Rehearsed, inputs: Batch, targets: Batch, losses: Tensor, table: Table
    ) -> bool:
        """Check the rehearsed example and the one with the largest gradient; refuse coupled examples."""
        totals = torch.stack(list(table.values())).sum(0)
        if not bool(totals.isfinite().all()):
            return True
        tolerance = Tolerance.of(self.dtype)
        largest = int(totals[1:].argmax()) + 1 if len(totals) > 1 else 0
        other = self._loop(rows(inputs, largest, largest + 1), rows(targets, largest, largest + 1))
        same_loss = torch.allclose(
            losses[:1], rehearsed.loss, rtol=tolerance.relative, atol=tolerance.relative
        )
        floor = tolerance.floor * float(totals.max())
        pairs = ((0, rehearsed.norms), (largest, other))
        if same_loss and all(self._close(table, i, truth, tolerance, floor) for i, truth in pairs):
            return True
        for i in (0, largest):
            refuse_coupled(self.model, inputs, targets, self.loss, i, 30 * tolerance.relative)
        return False

    def _close(self, table: Table, i: int, truth: Table, tolerance: Tolerance, floor: float) -> bool:
        """Whether every parameter's norm is the loop's; one that has a gradient but no use never is."""
        total = float(torch.stack(list(truth.values())).sum())
        for name, value in truth.items():
            right = float(value[0])
            if right > 0 and name not in self.claimed:
                return False
            allowed = tolerance.relative * right + tolerance.share * total + floor
            if abs(float(table[name][i]) - right) > allowed:
                return False
        return True

    def _loop(self, inputs: Batch, targets: Batch) -> Table:
        with self._casting():
            return loop_squared_norms(self.model, inputs, targets, self.loss, self.parameters)

    def _announce(self, watch: Watch) -> None:
        """Say once which layers take the general way, and what that costs."""
        for use in watch.uses:
            if not use.general or not any(use.call.layouts.values()):
                continue
            names = [self.names[root] for s in use.sources.values() for root in sorted(watch.parents[s])]
            layer = names[0].rpartition(".")[0] or names[0]
            if layer not in self.announced:
                self.announced.add(layer)
                size = sum(use.args[role].numel() for role in use.sources)
                func = getattr(use.call.func, "__name__", use.call.func)
                warnings.warn(
                    f"Layer `{layer}` ({func}) has no rule of its own: its {size:,} parameters are "
                    "differentiated example by example, which is slower but exact.",
                    FallbackWarning,
                    stacklevel=2,
                )

    def _give_up(self, reason: str) -> None:
        self.looped = True
        warnings.warn(
            f"Norms of {type(self.model).__name__} come one example at a time from the loop, as {reason}: "
            "exact, but several times slower.",
            FallbackWarning,
            stacklevel=2,
        )

    def _casting(self) -> AbstractContextManager[object]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)
