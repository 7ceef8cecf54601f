"""The engine of per-example norms: record one example, track batches, check the result against the loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from remanence.batches import Batch, call, cloned, rows, single, size_of, take, tensors_of
from remanence.gradients.accumulator import NormAccumulator
from remanence.gradients.coupling import refuse_batch_statistics, refuse_coupled
from remanence.gradients.example_loop import loop_squared_norms, squared_norms_of
from remanence.gradients.layout import DivergedError
from remanence.gradients.memory_format import MemoryFormat, has_2d_convolutions
from remanence.gradients.precision import Tolerance, active_autocast, without_autocast
from remanence.gradients.recording import Call, CallRecorder
from remanence.gradients.tracker import FallbackWarning, UseTracker
from remanence.losses import (
    ExampleLoss,
    example_losses,
    refuse_inference_mode,
    refuse_without_gradient,
)
from remanence.machine import require_half

Table = dict[str, Tensor]

RESCALE = 2.0**60
"""Squares in float32 underflow for norms near 1e-20 and overflow above 1e19: those are computed again, scaled."""
TOO_SMALL = 1e-24
"""A squared norm below this may have lost digits to underflow."""
TOO_SMALL_FLOAT16 = 1e-8
"""The same for gradients that passed through float16, whose smallest numbers are near 1e-7."""


CPU_BYTES = 256 << 20
"""Activations of one batch on a CPU: enough to keep a core busy, small enough for any machine."""
LARGEST_BATCH = 1024


@dataclass(eq=False)
class Recording:
    """The calls of one example, its loss, and its squared norms by plain autograd."""

    calls: list[Call]
    loss: Tensor
    norms: Table
    checked: bool = False


@dataclass(eq=False)
class Learned:
    """What the first batches have shown about a model; holds neither the model nor its parameters.

    Args:
        recordings: one example's calls for each shape of inputs and targets.
        uses_loop: whether the norms come from the loop.
        warned: the layers that were warned of.
        modifies_inputs: whether the model changes its inputs in place: then it gets copies.
        refuses_channels_last: whether the model's code does not support channels last.
    """

    recordings: dict[tuple[object, ...], Recording] = field(default_factory=dict)
    uses_loop: bool = False
    warned: set[str] = field(default_factory=set)
    modifies_inputs: bool = False
    refuses_channels_last: bool = False


@dataclass(eq=False)
class NormEngine:
    """Everything about a model that stays the same from batch to batch.

    Args:
        model: in the mode that the gradients are computed in.
        loss: one number per example.
        parameters: what to differentiate by, by name.
        autocast: run the forward pass in this half precision; the caller's own autocast when None.
        by_parameter: protect each parameter's norm from underflow, not just the total.
    """

    model: nn.Module
    loss: ExampleLoss
    parameters: Mapping[str, Tensor]
    autocast: torch.dtype | None = None
    by_parameter: bool = False
    learned: Learned = field(default_factory=Learned)

    def __post_init__(self) -> None:
        self._recalled = False
        self.tracked = {id(tensor): tensor for tensor in self.parameters.values()}
        self.names = {id(tensor): name for name, tensor in self.parameters.items()}
        others = [p for p in self.model.parameters() if p.requires_grad and id(p) not in self.tracked]
        self.frozen = {id(p): p for p in others}
        self.live = [*self.parameters.values(), *others]
        self.seen: set[str] = set()
        anchor = next(iter(self.parameters.values()))
        self.device, self.own_dtype = anchor.device, anchor.dtype
        if self.autocast is None and anchor.dtype == torch.float32:
            self.autocast = active_autocast(self.device.type)
        self.dtype = self.autocast or anchor.dtype
        require_half("dtype", str(self.dtype).removeprefix("torch."), self.device.type)
        self.too_small = TOO_SMALL_FLOAT16 if self.dtype == torch.float16 else TOO_SMALL
        self.memory_format = MemoryFormat(self.device.type == "cpu" and has_2d_convolutions(self.model))

    def recall(self, learned: Learned) -> None:
        """Go on with what an engine of the same model has learned."""
        self.learned, self._recalled = learned, True
        if learned.refuses_channels_last:
            self.memory_format = MemoryFormat(channels_last=False)

    def squared_norms(self, inputs: Batch, targets: Batch) -> Table:
        """Squared gradient norms of a batch's examples by parameter."""
        if not self.learned.uses_loop:
            try:
                return self._fast(inputs, targets)
            except DivergedError as problem:
                if self._recalled:  # the model runs other calls than at an earlier time
                    self.learned, self._recalled = Learned(), False
                    return self.squared_norms(inputs, targets)
                self._refuse_coupled(inputs, targets, (0, size_of(inputs) - 1))
                self._fall_back(f"a batch runs different calls than a single example ({problem})")
        return self._loop(inputs, targets)

    def recording(self, inputs: Batch, targets: Batch) -> Recording:
        """The recording for inputs of this shape, made once."""
        key = tuple((tensor.shape[1:], tensor.dtype) for tensor in tensors_of((inputs, targets)))
        recordings = self.learned.recordings
        if key not in recordings:
            recordings[key] = self._record(inputs, targets)
        return recordings[key]

    def fitting_batch_size(self, inputs: Batch, targets: Batch) -> int:
        """Number of examples whose inputs and activations fit in the memory budget, judged by the recorded example."""
        calls = self.recording(inputs, targets).calls
        numel = sum(shape.numel() for call in calls if call.differentiable for shape in call.out_shapes)
        numel += sum(tensor[0].numel() for tensor in tensors_of(inputs))
        on_gpu = self.device.type == "cuda"
        budget = torch.cuda.mem_get_info(self.device)[0] // 4 if on_gpu else CPU_BYTES
        return int(max(2, min(LARGEST_BATCH, budget // max(1, numel * self.dtype.itemsize))))

    def _record(self, inputs: Batch, targets: Batch) -> Recording:
        """With copies of the first example, which show whether the model modifies its inputs."""
        refuse_batch_statistics(self.model)
        refuse_inference_mode()
        x, y = single(inputs, 0), single(targets, 0)
        versions = _versions((x, y))
        recorder = CallRecorder(self.tracked, self.frozen)
        with torch.enable_grad():
            with self.casting(), recorder:
                value = example_losses(self.loss, call(self.model, x), y, 1)
            refuse_without_gradient(value)
            self.learned.modifies_inputs |= _versions((x, y)) != versions
            return Recording(recorder.calls, value.detach(), squared_norms_of(value, self.parameters))

    def _fast(self, inputs: Batch, targets: Batch) -> Table:
        recording = self.recording(inputs, targets)
        if size_of(inputs) == 1 and not recording.checked:
            # one example shows no batch dimension, and the loop costs the same
            return self._loop(inputs, targets)
        losses, table = self._first_pass(recording, inputs, targets)
        table = self._rescaled(recording.calls, inputs, targets, table)
        if not recording.checked:
            recording.checked = True
            if not self._agrees(recording, inputs, targets, losses, table):
                self._fall_back("its result and the loop's disagree")
                return self.squared_norms(inputs, targets)
        return table

    def _first_pass(self, recording: Recording, inputs: Batch, targets: Batch) -> tuple[Tensor, Table]:
        """Channels last where that is faster, unless the model's code does not support it (a `view`, for example)."""
        try:
            return self._pass(recording.calls, inputs, targets, 1.0)
        except RuntimeError:
            if recording.checked or not self.memory_format.channels_last:
                raise
            self.learned.refuses_channels_last = True
            self.memory_format = MemoryFormat(channels_last=False)
            return self._pass(recording.calls, inputs, targets, 1.0)

    def _pass(
        self, calls: list[Call], inputs: Batch, targets: Batch, scale: float, cast: bool = True
    ) -> tuple[Tensor, Table]:
        accumulator = NormAccumulator(self.names, size_of(inputs), self.device)
        losses = self.accumulate(accumulator, calls, inputs, targets, scale, cast)
        if scale == 1:
            return losses, accumulator.table
        return losses, {name: row / scale**2 for name, row in accumulator.table.items()}

    def accumulate(
        self,
        accumulator: NormAccumulator,
        calls: list[Call],
        inputs: Batch,
        targets: Batch,
        scale: float = 1.0,
        cast: bool = True,
    ) -> Tensor:
        """One forward and backward pass over a batch, whose uses go to the accumulator; returns the losses."""
        n = size_of(inputs)
        if self.learned.modifies_inputs:
            inputs, targets = cloned(inputs), cloned(targets)
        inputs = self.memory_format.inputs(inputs)
        values = self.memory_format.values(self.tracked)
        tracker = UseTracker(self.tracked, self.frozen, calls, n, values, accumulator.add)
        accumulator.tracker = tracker
        with torch.enable_grad(), self._gradients_restored():
            with self.casting() if cast else without_autocast(self.device.type), tracker:
                losses = example_losses(self.loss, call(self.model, inputs), targets, n)
            tracker.close()
            tracker.warn_of_fallbacks(self.names, self.learned.warned)
            refuse_without_gradient(losses)
            with without_autocast(self.device.type):
                # a sum, since gradients given from outside make torch load its symbolic algebra first: half a second
                torch.autograd.backward((losses if scale == 1 else losses * scale).sum())
        accumulator.finish()
        self.seen = {self.names[key] for key in accumulator.seen}
        return losses.detach()

    @contextmanager
    def _gradients_restored(self) -> Iterator[None]:
        """Parameters whose use the tracker does not see get the batch's gradient: every `.grad` is restored."""
        before = [parameter.grad for parameter in self.live]
        for parameter in self.live:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient in zip(self.live, before, strict=True):
                parameter.grad = gradient

    def _rescaled(self, calls: list[Call], inputs: Batch, targets: Batch, table: Table) -> Table:
        """Compute again, scaled and without autocast, the examples whose squares underflowed or overflowed."""
        if torch.float64 in (self.dtype, self.own_dtype) or self.own_dtype == torch.float16:
            return table  # not needed, or, with float16 parameters, not possible
        total = torch.stack(list(table.values()))
        # most of what overflows in half precision does not in float32
        for scale in (RESCALE, 1.0, 1 / RESCALE) if self.autocast else (RESCALE, 1 / RESCALE):
            lost = self._too_small(total) if scale > 1 else ~total.sum(0).isfinite()
            chosen = lost.nonzero().flatten()
            if chosen.numel():
                part = take(inputs, chosen), take(targets, chosen)
                again = self._pass(calls, *part, scale, cast=False)[1]
                for name, row in table.items():
                    redo = self._recovered(row[chosen], again[name], scale)
                    row[chosen[redo]] = again[name][redo]
                total = torch.stack(list(table.values()))
        return table

    def _recovered(self, before: Tensor, after: Tensor, scale: float) -> Tensor:
        """Which values of the second run to take: what was infinite is not 0 when scaled down."""
        if scale > 1:
            return (before < self.too_small) & after.isfinite()
        return ~before.isfinite() & after.isfinite() & ((after > 0) | before.isnan() | (scale == 1))

    def _too_small(self, rows_by_parameter: Tensor) -> Tensor:
        if self.by_parameter:
            return (rows_by_parameter < self.too_small).any(0)
        return rows_by_parameter.sum(0) < self.too_small

    def _agrees(
        self, recording: Recording, inputs: Batch, targets: Batch, losses: Tensor, table: Table
    ) -> bool:
        """Check the recorded example and the one with the largest gradient; raise for coupled examples."""
        totals = torch.stack(list(table.values())).sum(0)
        if not bool(totals.isfinite().all()):
            return True
        tolerance = Tolerance.of(self.dtype)
        largest = int(totals[1:].argmax()) + 1 if len(totals) > 1 else 0
        other = self._loop(rows(inputs, largest, largest + 1), rows(targets, largest, largest + 1))
        same_loss = torch.allclose(
            losses[:1], recording.loss, rtol=tolerance.relative, atol=tolerance.relative
        )
        floor = tolerance.floor * float(totals.max())
        # in half precision the recorded gradient may have overflowed
        first = self._loop(rows(inputs, 0, 1), rows(targets, 0, 1)) if self.autocast else recording.norms
        pairs = ((0, first), (largest, other))
        if same_loss and all(self._close(table, i, truth, tolerance, floor) for i, truth in pairs):
            return True
        self._refuse_coupled(inputs, targets, (0, largest))
        return False

    def _refuse_coupled(self, inputs: Batch, targets: Batch, suspects: Iterable[int]) -> None:
        """Raise for coupled examples. In the parameters' own precision: half precision is too coarse."""
        if size_of(inputs) == 1:
            return
        with without_autocast(self.device.type):
            for i in dict.fromkeys(suspects):
                refuse_coupled(
                    self.model, inputs, targets, self.loss, i, Tolerance.of(self.own_dtype).in_batch
                )

    def _close(self, table: Table, i: int, truth: Table, tolerance: Tolerance, floor: float) -> bool:
        """Whether every parameter's norm is the loop's; one with a gradient but no use never is."""
        total = float(torch.stack(list(truth.values())).sum())
        for name, value in truth.items():
            right = float(value[0])
            if not math.isfinite(right) or (right > 0 and name not in self.seen):
                return False
            allowed = tolerance.relative * right + tolerance.share * total + floor
            if abs(float(table[name][i]) - right) > allowed:
                return False
        return True

    def _loop(self, inputs: Batch, targets: Batch) -> Table:
        """The loop's result; in float32 where autocast underflowed or overflowed."""
        loop = partial(loop_squared_norms, self.model, loss=self.loss, parameters=self.parameters)
        with self.casting():
            table = loop(inputs=inputs, targets=targets)
        if self.autocast is not None:
            total = torch.stack(list(table.values())).sum(0)
            lost = (~(total >= self.too_small) | total.isinf()).nonzero().flatten()
            if lost.numel():
                with without_autocast(self.device.type):
                    again = loop(inputs=take(inputs, lost), targets=take(targets, lost))
                for name, row in table.items():
                    row[lost] = again[name]
        return table

    def _fall_back(self, reason: str) -> None:
        self.learned.uses_loop = True
        warnings.warn(
            f"Norms of {type(self.model).__name__} come one example at a time from the loop, as {reason}: "
            "exact, but several times slower.",
            FallbackWarning,
            stacklevel=2,
        )

    def casting(self) -> AbstractContextManager[object]:
        """The autocast context of the forward pass."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)


def _versions(batch: Batch) -> list[int]:
    return [tensor._version for tensor in tensors_of(batch)]
