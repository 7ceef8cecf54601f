"""A model made ready for per-example norms: rehearse one example, follow with batches, answer to the loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from remanence.gradients.batches import Batch, call, cloned, rows, single, size_of, take, tensors_of
from remanence.gradients.coupling import refuse_batch_statistics, refuse_coupled
from remanence.gradients.fallbacks import FallbackWarning, announce_fallbacks
from remanence.gradients.formats import Formats, has_planes
from remanence.gradients.layout import DivergedError
from remanence.gradients.ledger import Ledger
from remanence.gradients.losses import (
    ExampleLoss,
    example_losses,
    refuse_inference_mode,
    refuse_without_gradient,
)
from remanence.gradients.precision import ambient, uncast
from remanence.gradients.reference import loop_squared_norms, squared_norms_of
from remanence.gradients.tolerance import Tolerance
from remanence.gradients.watch import Rehearsal, Script, Watch
from remanence.machine import require_half

Table = dict[str, Tensor]

RESCUE = 2.0**60
"""Squares of float32 leave their range for norms near 1e-20 and above 1e19: those are run again, scaled."""
TOO_SMALL = 1e-24
"""A squared norm below this may have lost digits to underflow."""
TOO_SMALL_FLOAT16 = 1e-8
"""The same for gradients that passed through float16, whose smallest numbers are near 1e-7."""


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
        autocast: run the forward pass in this half precision; the caller's own autocast when None.
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
    changes: bool = False
    """Whether the model changes its inputs in place: then it gets copies."""

    def __post_init__(self) -> None:
        self.watched = {id(tensor): tensor for tensor in self.parameters.values()}
        self.names = {id(tensor): name for name, tensor in self.parameters.items()}
        others = [p for p in self.model.parameters() if p.requires_grad and id(p) not in self.watched]
        self.frozen = {id(p): p for p in others}
        self.live = [*self.parameters.values(), *others]
        self.claimed: set[str] = set()
        anchor = next(iter(self.parameters.values()))
        self.device, self.own_dtype = anchor.device, anchor.dtype
        if self.autocast is None and anchor.dtype == torch.float32:
            self.autocast = ambient(self.device.type)
        self.dtype = self.autocast or anchor.dtype
        require_half("dtype", str(self.dtype).removeprefix("torch."), self.device.type)
        self.too_small = TOO_SMALL_FLOAT16 if self.dtype == torch.float16 else TOO_SMALL
        self.formats = Formats(self.device.type == "cpu" and has_planes(self.model))

    def squared_norms(self, inputs: Batch, targets: Batch) -> Table:
        """Squared gradient norms of a batch's examples by parameter."""
        if not self.looped:
            try:
                return self._fast(inputs, targets)
            except DivergedError as problem:
                self._refuse_coupled(inputs, targets, (0, size_of(inputs) - 1))
                self._give_up(f"a batch takes another course than a single example ({problem})")
        return self._loop(inputs, targets)

    def rehearsed(self, inputs: Batch, targets: Batch) -> Rehearsed:
        """The rehearsal for inputs of this shape, held once."""
        key = tuple((tensor.shape[1:], tensor.dtype) for tensor in tensors_of((inputs, targets)))
        if key not in self.rehearsals:
            self.rehearsals[key] = self._rehearse(inputs, targets)
        return self.rehearsals[key]

    def _rehearse(self, inputs: Batch, targets: Batch) -> Rehearsed:
        """With copies of the first example, which show whether the model changes what it is given."""
        refuse_batch_statistics(self.model)
        refuse_inference_mode()
        x, y = single(inputs, 0), single(targets, 0)
        versions = _versions((x, y))
        mode = Rehearsal(self.watched, self.frozen)
        with torch.enable_grad():
            with self.casting(), mode:
                value = example_losses(self.loss, call(self.model, x), y, 1)
            refuse_without_gradient(value)
            self.changes = self.changes or _versions((x, y)) != versions
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

    def _follow(
        self, script: Script, inputs: Batch, targets: Batch, scale: float, cast: bool = True
    ) -> tuple[Tensor, Table]:
        ledger = Ledger(self.names, size_of(inputs), self.device)
        losses = self.follow(ledger, script, inputs, targets, scale, cast)
        if scale == 1:
            return losses, ledger.table
        return losses, {name: row / scale**2 for name, row in ledger.table.items()}

    def follow(
        self,
        ledger: Ledger,
        script: Script,
        inputs: Batch,
        targets: Batch,
        scale: float = 1.0,
        cast: bool = True,
    ) -> Tensor:
        """One pass over a batch, its uses settled by the ledger; the losses."""
        n = size_of(inputs)
        if self.changes:
            inputs, targets = cloned(inputs), cloned(targets)
        inputs = self.formats.inputs(inputs)
        watch = Watch(self.watched, self.frozen, script, n, self.formats.values(self.watched), ledger.arrive)
        ledger.watch = watch
        with torch.enable_grad(), self._gradients_aside():
            with self.casting() if cast else uncast(self.device.type), watch:
                losses = example_losses(self.loss, call(self.model, inputs), targets, n)
            watch.close()
            announce_fallbacks(watch, self.names, self.announced)
            refuse_without_gradient(losses)
            with uncast(self.device.type):
                # a sum, since gradients given from outside make torch load its symbolic algebra first: half a second
                torch.autograd.backward((losses if scale == 1 else losses * scale).sum())
        ledger.finish()
        self.claimed = {self.names[key] for key in ledger.claimed}
        return losses.detach()

    @contextmanager
    def _gradients_aside(self) -> Iterator[None]:
        """Parameters that a watch cannot see get the batch's gradient: every `.grad` is put back after."""
        before = [parameter.grad for parameter in self.live]
        for parameter in self.live:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(self.live, before, strict=True):
                parameter.grad = gradient

    def _rescued(self, script: Script, inputs: Batch, targets: Batch, table: Table) -> Table:
        """Run again, scaled and without autocast, the examples whose squares left the range of the numbers."""
        if torch.float64 in (self.dtype, self.own_dtype) or self.own_dtype == torch.float16:
            return table  # no need, or, among float16 parameters, no room
        total = torch.stack(list(table.values()))
        # what is infinite in half precision is rarely so in float32
        for scale in (RESCUE, 1.0, 1 / RESCUE) if self.autocast else (RESCUE, 1 / RESCUE):
            lost = self._too_small(total) if scale > 1 else ~total.sum(0).isfinite()
            chosen = lost.nonzero().flatten()
            if chosen.numel():
                part = take(inputs, chosen), take(targets, chosen)
                again = self._follow(script, *part, scale, cast=False)[1]
                for name, row in table.items():
                    redo = self._recovered(row[chosen], again[name], scale)
                    row[chosen[redo]] = again[name][redo]
                total = torch.stack(list(table.values()))
        return table

    def _recovered(self, before: Tensor, after: Tensor, scale: float) -> Tensor:
        """Which values of a second run to believe: what was infinite is not 0 when scaled down."""
        if scale > 1:
            return (before < self.too_small) & after.isfinite()
        return ~before.isfinite() & after.isfinite() & ((after > 0) | before.isnan() | (scale == 1))

    def _too_small(self, rows_by_parameter: Tensor) -> Tensor:
        if self.by_parameter:
            return (rows_by_parameter < self.too_small).any(0)
        return rows_by_parameter.sum(0) < self.too_small

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
        # in half precision the rehearsal's own gradient may have left the range of the numbers
        first = self._loop(rows(inputs, 0, 1), rows(targets, 0, 1)) if self.autocast else rehearsed.norms
        pairs = ((0, first), (largest, other))
        if same_loss and all(self._close(table, i, truth, tolerance, floor) for i, truth in pairs):
            return True
        self._refuse_coupled(inputs, targets, (0, largest))
        return False

    def _refuse_coupled(self, inputs: Batch, targets: Batch, suspects: Iterable[int]) -> None:
        """In the parameters' own precision: half ones are too coarse to tell."""
        if size_of(inputs) == 1:
            return
        with uncast(self.device.type):
            for i in dict.fromkeys(suspects):
                refuse_coupled(
                    self.model, inputs, targets, self.loss, i, Tolerance.of(self.own_dtype).company
                )

    def _close(self, table: Table, i: int, truth: Table, tolerance: Tolerance, floor: float) -> bool:
        """Whether every parameter's norm is the loop's; one that has a gradient but no use never is."""
        total = float(torch.stack(list(truth.values())).sum())
        for name, value in truth.items():
            right = float(value[0])
            if not math.isfinite(right) or (right > 0 and name not in self.claimed):
                return False
            allowed = tolerance.relative * right + tolerance.share * total + floor
            if abs(float(table[name][i]) - right) > allowed:
                return False
        return True

    def _loop(self, inputs: Batch, targets: Batch) -> Table:
        """The loop's answer; in float32 where autocast has led out of the range of the numbers."""
        loop = partial(loop_squared_norms, self.model, loss=self.loss, parameters=self.parameters)
        with self.casting():
            table = loop(inputs=inputs, targets=targets)
        if self.autocast is not None:
            total = torch.stack(list(table.values())).sum(0)
            lost = (~(total >= self.too_small) | total.isinf()).nonzero().flatten()
            if lost.numel():
                with uncast(self.device.type):
                    again = loop(inputs=take(inputs, lost), targets=take(targets, lost))
                for name, row in table.items():
                    row[lost] = again[name]
        return table

    def _give_up(self, reason: str) -> None:
        self.looped = True
        warnings.warn(
            f"Norms of {type(self.model).__name__} come one example at a time from the loop, as {reason}: "
            "exact, but several times slower.",
            FallbackWarning,
            stacklevel=2,
        )

    def casting(self) -> AbstractContextManager[object]:
        """The precision of the forward pass."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)


def _versions(batch: Batch) -> list[int]:
    """How often each tensor was written to."""
    return [tensor._version for tensor in tensors_of(batch)]
