"""Norms in flight: per-example gradient norms inside an ordinary training step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from remanence.batches import device_of, single, size_of, tensors_of
from remanence.errors import InputError
from remanence.gradients.accumulator import NormAccumulator
from remanence.gradients.coupling import refuse_batch_statistics
from remanence.gradients.evaluation_mode import keeping_buffers
from remanence.gradients.example_norms import choose_parameters
from remanence.gradients.in_flight_tracker import InFlightTracker, no_fallback
from remanence.gradients.memory_format import MemoryFormat, has_2d_convolutions, weight_gradients_safe
from remanence.gradients.recording import Call, CallRecorder
from remanence.losses import refuse_inference_mode
from remanence.machine.random_state import keeping_random_state
from remanence.types import check_choice

FormattedRecording = tuple[list[Call], MemoryFormat]

_recordings: weakref.WeakKeyDictionary[nn.Module, dict[Any, FormattedRecording]] = weakref.WeakKeyDictionary()
"""Recordings by model, so that a training loop records once."""
_warned: weakref.WeakKeyDictionary[nn.Module, set[str]] = weakref.WeakKeyDictionary()
"""Layers by model that have caused a warning that they are computed more slowly."""


class FlightNorms:
    """The per-example gradient norms of one training step, available after the backward pass."""

    def __init__(self, factor: float, dtype: torch.dtype) -> None:
        self._accumulator: NormAccumulator | None = None
        self._factor, self._dtype = factor, dtype
        self._size = 1.0
        self._squares: dict[str, Tensor] | None = None
        self._missed: set[str] = set()

    @property
    def values(self) -> Tensor:
        """Tensor[n]: the norm of each example's own loss gradient."""
        return self._norms(torch.stack(list(self._squared_norms().values())).sum(0))

    @property
    def by_parameter(self) -> dict[str, Tensor]:
        """The norms of each parameter's gradient, by name."""
        return {name: self._norms(row) for name, row in self._squared_norms().items()}

    def _norms(self, squares: Tensor) -> Tensor:
        return (squares.sqrt() * self._size * self._factor).to(self._dtype)

    def _squared_norms(self) -> dict[str, Tensor]:
        """Squared norms by parameter, as they are in the loss that was differentiated."""
        if self._missed:
            raise InputError(
                f"Every parameter must be used through torch functions; `{sorted(self._missed)[0]}` got a "
                "gradient from something else (for example an assignment into a tensor, or an autograd.Function). "
                "Leave it out of `parameters`, or use example_gradient_norms between steps."
            )
        if self._squares is None:
            accumulator = self._accumulator
            if accumulator is None or not any(
                use.reached or not use.args for use in accumulator.tracker.uses
            ):
                raise InputError(
                    "Norms in flight are available after a forward and a backward pass inside the `with` block; "
                    "call loss.backward() before reading them."
                )
            with no_fallback():
                accumulator.finish()
            self._squares = accumulator.table
        return self._squares

    def _watch_unseen(self, name: str, parameter: Tensor) -> None:
        """Remember if a parameter gets a gradient although no call was seen to use it."""
        missed = self._missed

        def note(gradient: Tensor) -> None:
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            if bool(values.any()):
                missed.add(name)

        handle = parameter.register_hook(note)  # type: ignore[no-untyped-call]
        weakref.finalize(self, handle.remove)


@contextmanager
def norms_in_flight(
    model: nn.Module,
    reduction: Literal["mean", "sum"] = "mean",
    *,
    share: bool = True,
    parameters: Iterable[str | Tensor] | None = None,
    loss_scale: float = 1.0,
) -> Iterator[FlightNorms]:
    """Per-example gradient norms of a training step, in addition to the weight gradients that it computes.

    One forward pass of `model` and one backward pass belong inside the block; read `norms.values` after it.
    Before the first batch of a shape, one example runs through the model; random state and buffers are restored.

    Args:
        model: in the mode it is trained in; BatchNorm that uses the batch's statistics raises an error.
        reduction: how the loss combines the examples; norms are those of an example's own loss.
        share: let layers that build per-example gradients sum them to the weight gradient: faster, equal up to
            rounding. With False the weight gradients are bit for bit those of an ordinary backward pass.
        parameters: names or tensors to take the norm over; all that require a gradient when None.
        loss_scale: the factor that mixed-precision training multiplies the loss with.
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    refuse_batch_statistics(model)
    chosen = choose_parameters(model, parameters)
    double = all(p.dtype == torch.float64 for p in chosen.values())
    norms = FlightNorms(1.0 / loss_scale, torch.float64 if double else torch.float32)
    step = _TrainingStep(model, chosen, reduction, share, norms)
    before = model.register_forward_pre_hook(step.enter, prepend=True, with_kwargs=True)
    after = model.register_forward_hook(step.leave, always_call=True)
    try:
        yield norms
    finally:
        before.remove()
        after.remove()


class _TrainingStep:
    """Tracks the model's forward pass."""

    def __init__(
        self,
        model: nn.Module,
        chosen: Mapping[str, Tensor],
        reduction: str,
        share: bool,
        norms: FlightNorms,
    ) -> None:
        self.model, self.chosen, self.norms = model, chosen, norms
        self.reduction, self.share = reduction, share
        self.tracker: InFlightTracker | None = None
        self.running = False

    def enter(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Record one example if needed, then start tracking."""
        if self.tracker is not None:
            raise InputError(
                "The model must run once inside the block; it was called again. Use a block for each step."
            )
        n = size_of((args, kwargs))
        tracked = {id(tensor): tensor for tensor in self.chosen.values()}
        calls, memory_format = self._recording(tracked, args, kwargs, n)
        names = {id(tensor): name for name, tensor in self.chosen.items()}
        accumulator = NormAccumulator(names, n, next(iter(tracked.values())).device)
        values = {key: tensor.detach() for key, tensor in tracked.items()}
        self.tracker = InFlightTracker(
            tracked, {}, calls, n, values, accumulator.add, share=self.share, accumulator=accumulator
        )
        accumulator.tracker = self.tracker
        self.norms._accumulator = accumulator
        self.norms._size = float(n) if self.reduction == "mean" else 1.0
        self.running = True
        args, kwargs = memory_format.inputs((args, kwargs))
        self.tracker.__enter__()  # type: ignore[no-untyped-call]
        return args, kwargs

    def leave(self, model: nn.Module, args: Any, output: Any) -> None:
        """The forward pass is over, successfully or not."""
        tracker = self.tracker
        if tracker is None or not self.running:
            return
        self.running = False
        tracker.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if output is not None:
            self._close(tracker)

    def _close(self, tracker: InFlightTracker) -> None:
        with no_fallback():
            tracker.close()
        single = tracker.accumulator.single_use_parameters()
        for use in tracker.uses:
            use.call.sole_use = all(source in single for source in use.sources.values())
        for key, name in tracker.accumulator.names.items():
            if key not in tracker.accumulator.seen:
                self.norms._watch_unseen(name, tracker.tracked[key])
        tracker.warn_of_fallbacks(tracker.accumulator.names, _warned.setdefault(self.model, set()))

    def _recording(
        self, tracked: dict[int, Tensor], args: Any, kwargs: dict[str, Any], n: int
    ) -> FormattedRecording:
        known = _recordings.setdefault(self.model, {})
        shapes = tuple((t.shape[1:], t.dtype) for t in tensors_of((args, kwargs)))
        key = (shapes, self.model.training, self.share, frozenset(self.chosen))
        if key not in known:
            if n < 2:
                raise InputError("The first batch in flight must hold at least two examples; it holds one.")
            known[key] = self._record_formatted(tracked, (single(args, 0), single(kwargs, 0)))
        return known[key]

    def _record_formatted(self, tracked: dict[int, Tensor], one: Any) -> FormattedRecording:
        """Channels last, which is faster, where work is shared and the model's code supports it."""
        on_cpu = next(iter(tracked.values())).device.type == "cpu"
        safe = has_2d_convolutions(self.model) and weight_gradients_safe(self.model)
        memory_format = MemoryFormat(self.share and on_cpu and safe)
        try:
            return self._record(tracked, *memory_format.inputs(one)), memory_format
        except RuntimeError:
            if not memory_format.channels_last:
                raise
            return self._record(tracked, *one), MemoryFormat(channels_last=False)

    def _record(self, tracked: dict[int, Tensor], args: Any, kwargs: dict[str, Any]) -> list[Call]:
        """One example's forward pass, with random state and buffers restored."""
        refuse_inference_mode()
        recorder = CallRecorder(tracked, {})
        random_state = keeping_random_state(device_of(self.model))
        with keeping_buffers(self.model), random_state, torch.enable_grad(), recorder:
            outputs = tensors_of(self.model.forward(*args, **kwargs))
        if outputs and not any(output.requires_grad for output in outputs):
            raise InputError(
                "The model's output must depend on its parameters; it requires no gradient. Does the forward "
                "pass run under torch.no_grad(), or is its output detached?"
            )
        return recorder.calls
