"""Norms in flight: the same rules inside an ordinary training step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from remanence.errors import InputError
from remanence.gradients.batches import single, size_of, tensors_of
from remanence.gradients.coupling import refuse_batch_statistics
from remanence.gradients.fallbacks import announce_fallbacks, layer_of
from remanence.gradients.flight_norms import FlightNorms, refuse_course
from remanence.gradients.formats import Formats, has_planes, weight_gradients_safe
from remanence.gradients.layout import DivergedError
from remanence.gradients.ledger import Ledger
from remanence.gradients.losses import refuse_inference_mode
from remanence.gradients.norms import choose, keeping_buffers
from remanence.gradients.sharing import Carry
from remanence.gradients.use import Call, Use, Wiring
from remanence.gradients.watch import Rehearsal, Script, Watch
from remanence.types import check_choice

Rehearsed = tuple[Script, Formats]

_rehearsed: weakref.WeakKeyDictionary[nn.Module, dict[Any, Rehearsed]] = weakref.WeakKeyDictionary()
"""Rehearsals of every model seen, so that a training loop rehearses once."""
_announced: weakref.WeakKeyDictionary[nn.Module, set[str]] = weakref.WeakKeyDictionary()
"""Layers of every model that have said that they take a slower way."""


class _Flight(Watch):
    """A watch that leaves the graph whole: parameters get their gradients as in any training step."""

    def __init__(self, *args: Any, share: bool, ledger: Ledger) -> None:
        super().__init__(*args)
        self.share, self.ledger = share, ledger
        self.arrive = self._told(self.arrive)
        # the step's own graph is gone when derived tensors are differentiated: they get one of their own
        self.roots = {key: tensor.detach().requires_grad_() for key, tensor in self.watched.items()}

    @staticmethod
    def _told(arrive: Callable[[Use], None]) -> Callable[[Use], None]:
        """In the backward pass too, what cannot be taken apart is refused in one sentence."""

        def settle(use: Use) -> None:
            try:
                arrive(use)
            except DivergedError as problem:
                refuse_course(problem)

        return settle

    def visit(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """As any watch does; there is no loop to fall back to."""
        try:
            return super().visit(func, args, kwargs)
        except DivergedError as problem:
            refuse_course(problem)

    def _generic(self, call: Call, args: Any, kwargs: dict[str, Any]) -> Use:
        """Replaying a call that draws random numbers would draw others."""
        use = super()._generic(call, args, kwargs)
        if call.draws:
            layer = layer_of(use, self, self.ledger.names)
            raise InputError(
                f"A layer without a rule of its own must not draw random numbers in flight; `{layer}` does. "
                "Set its dropout to 0, or use example_gradient_norms between steps."
            )
        return use

    def run(self, use: Use, args: Any, kwargs: dict[str, Any], cut: tuple[Any, dict[str, Any]]) -> Any:
        """As written, or, where the rule builds gradients anyway, through a node that hands them on."""
        if self.share and use.call.lone and use.rule.shares(use):
            output = use.call.func(*cut[0], **cut[1])
            parameters = [self.watched[source] for source in use.sources.values()]
            return Carry.apply(output, use, self.ledger.settle, *parameters)  # type: ignore[no-untyped-call]
        return use.call.func(*args, **kwargs)

    def fused(self, use: Use, live: Tensor, cut: tuple[Any, dict[str, Any]]) -> Tensor | None:
        """Only where gradients may come from elsewhere, and nobody but the chosen parameters needs one."""
        if not (self.share and use.call.lone) or _other_gradients(live, *cut):
            return None
        parameters = [self.watched[source] for source in use.sources.values()]
        return use.rule.fused(use, Wiring(live, self.anchor, self.arrive, parameters))

    def expanded(self, result: Any) -> Any:
        """Left in the graph."""
        return result

    def rederived(self, call: Call, args: Any, kwargs: dict[str, Any], result: Any) -> list[Tensor]:
        """Computed again from copies of the parameters."""
        twins = {**self.roots, **self.derived}
        again = tree_map_only(Tensor, lambda t: twins.get(id(t), t), (args, kwargs))
        with torch.enable_grad():
            return [
                leaf for leaf in tree_flatten(call.func(*again[0], **again[1]))[0] if isinstance(leaf, Tensor)
            ]

    def _tap(self, use: Use, k: int, output: Tensor) -> Tensor:
        carried = type(output.grad_fn).__name__ == "CarryBackward"
        return output if carried else super()._tap(use, k, output)


def _other_gradients(live: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call has arguments besides its input that want a gradient."""
    values = (*args, *kwargs.values())
    return any(isinstance(t, Tensor) and t.requires_grad and t is not live for t in values)


@contextmanager
def norms_in_flight(
    model: nn.Module,
    reduction: Literal["mean", "sum"] = "mean",
    *,
    share: bool = True,
    parameters: Iterable[str | Tensor] | None = None,
    loss_scale: float = 1.0,
) -> Iterator[FlightNorms]:
    """Per-example gradient norms of a training step, beside the weight gradients that it computes anyway.

    One forward pass of `model` and one backward pass belong inside the block; read `norms.values` after.
    The first batch of a shape is preceded by a rehearsal with one example, which leaves no trace: random
    state and buffers are restored.

    Args:
        model: in the mode it is trained in; BatchNorm with the batch's statistics is refused.
        reduction: how the loss joins the examples; norms are those of an example's own loss.
        share: let layers that build per-example gradients add them up to the weight gradient: faster, equal
            to rounding. False leaves the ordinary backward pass alone: gradients keep their bits.
        parameters: names or tensors to take the norm over; all that require a gradient when None.
        loss_scale: the factor that mixed-precision training multiplies the loss with.
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    refuse_batch_statistics(model)
    chosen = choose(model, parameters)
    double = all(p.dtype == torch.float64 for p in chosen.values())
    norms = FlightNorms(1.0 / loss_scale, torch.float64 if double else torch.float32)
    step = _Step(model, chosen, reduction, share, norms)
    before = model.register_forward_pre_hook(step.enter, prepend=True, with_kwargs=True)
    after = model.register_forward_hook(step.leave, always_call=True)
    try:
        yield norms
    finally:
        before.remove()
        after.remove()


class _Step:
    """Turns the mode on for the length of the model's forward pass."""

    def __init__(
        self,
        model: nn.Module,
        chosen: Mapping[str, Tensor],
        reduction: str,
        share: bool,
        norms: FlightNorms,
    ) -> None:
        self.model, self.chosen, self.reduction, self.share, self.norms = (
            model,
            chosen,
            reduction,
            share,
            norms,
        )
        self.watch: _Flight | None = None
        self.flying = False

    def enter(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Rehearse if need be, then watch."""
        if self.watch is not None:
            raise InputError(
                "The model must run once inside the block; it was called again. Use a block for each step."
            )
        n = size_of((args, kwargs))
        watched = {id(tensor): tensor for tensor in self.chosen.values()}
        script, formats = self._known(watched, args, kwargs, n)
        ledger = Ledger(
            {id(t): name for name, t in self.chosen.items()}, n, next(iter(watched.values())).device
        )
        values = {key: tensor.detach() for key, tensor in watched.items()}
        self.watch = _Flight(watched, {}, script, n, values, ledger.arrive, share=self.share, ledger=ledger)
        ledger.watch = self.watch
        self.norms._ledger = ledger
        self.norms._size = float(n) if self.reduction == "mean" else 1.0
        self.flying = True
        args, kwargs = formats.inputs((args, kwargs))
        self.watch.__enter__()  # type: ignore[no-untyped-call]
        return args, kwargs

    def leave(self, model: nn.Module, args: Any, output: Any) -> None:
        """The forward pass is over, well or not."""
        watch = self.watch
        if watch is None or not self.flying:
            return
        self.flying = False
        watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if output is not None:
            self._close(watch)

    def _close(self, watch: _Flight) -> None:
        try:
            watch.close()
        except DivergedError as problem:
            refuse_course(problem)
        lone = watch.ledger.lone_sources()
        for use in watch.uses:
            use.call.lone = all(source in lone for source in use.sources.values())
        for key, name in watch.ledger.names.items():
            if key not in watch.ledger.claimed:
                self.norms._wait_for(name, watch.watched[key])
        announce_fallbacks(watch, watch.ledger.names, _announced.setdefault(self.model, set()))

    def _known(self, watched: dict[int, Tensor], args: Any, kwargs: dict[str, Any], n: int) -> Rehearsed:
        known = _rehearsed.setdefault(self.model, {})
        shapes = tuple((t.shape[1:], t.dtype) for t in tensors_of((args, kwargs)))
        key = (shapes, self.model.training, self.share, frozenset(self.chosen))
        if key not in known:
            if n < 2:
                raise InputError("The first batch in flight must hold at least two examples; it holds one.")
            known[key] = self._formatted(watched, (single(args, 0), single(kwargs, 0)))
        return known[key]

    def _formatted(self, watched: dict[int, Tensor], one: Any) -> Rehearsed:
        """Channels last where work is shared and the model's code can take it: that is the faster way."""
        on_cpu = next(iter(watched.values())).device.type == "cpu"
        formats = Formats(
            self.share and on_cpu and has_planes(self.model) and weight_gradients_safe(self.model)
        )
        try:
            return self._rehearse(watched, *formats.inputs(one)), formats
        except RuntimeError:
            if not formats.last:
                raise
            return self._rehearse(watched, *one), Formats(last=False)

    def _rehearse(self, watched: dict[int, Tensor], args: Any, kwargs: dict[str, Any]) -> Script:
        """One example's forward pass, with random state and buffers put back after."""
        refuse_inference_mode()
        mode = Rehearsal(watched, {})
        with keeping_buffers(self.model), torch.random.fork_rng(), torch.enable_grad(), mode:
            outputs = tensors_of(self.model.forward(*args, **kwargs))
        if outputs and not any(output.requires_grad for output in outputs):
            raise InputError(
                "The model's output must depend on its parameters; it requires no gradient. Does the forward "
                "pass run under torch.no_grad(), or is its output detached?"
            )
        return mode.script
