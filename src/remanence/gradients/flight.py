"""Norms in flight: the same rules inside an ordinary training step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from remanence.errors import InputError
from remanence.gradients.batches import rows, size_of, tensors_of
from remanence.gradients.coupling import refuse_batch_statistics
from remanence.gradients.formats import Formats, has_planes, weight_gradients_safe
from remanence.gradients.layout import DivergedError
from remanence.gradients.ledger import Ledger
from remanence.gradients.norms import choose
from remanence.gradients.sharing import Carry
from remanence.gradients.use import Call, Use, Wiring
from remanence.gradients.watch import Rehearsal, Script, Watch
from remanence.types import check_choice

Rehearsed = tuple[Script, Formats]

_rehearsed: weakref.WeakKeyDictionary[nn.Module, dict[Any, Rehearsed]] = weakref.WeakKeyDictionary()
"""Rehearsals of every model seen, so that a training loop rehearses once."""


class FlightNorms:
    """The per-example gradient norms of one training step, there once the backward pass is over."""

    def __init__(self, factor: float) -> None:
        self._ledger: Ledger | None = None
        self._factor = factor
        self._size = 1.0
        self._table: dict[str, Tensor] | None = None

    @property
    def values(self) -> Tensor:
        """Tensor[n]: the norm of each example's own loss gradient."""
        return torch.stack([row.square() for row in self.by_parameter.values()]).sum(0).sqrt()

    @property
    def by_parameter(self) -> dict[str, Tensor]:
        """The same for each parameter."""
        if self._table is None:
            ledger = self._ledger
            if ledger is None or not any(use.reached or not use.args for use in ledger.watch.uses):
                raise InputError(
                    "Norms in flight are there after a forward and a backward pass inside the `with` block; "
                    "call loss.backward() before reading them."
                )
            ledger.finish()
            self._table = {
                name: (row.sqrt() * self._size * self._factor).to(torch.float32)
                for name, row in ledger.table.items()
            }
        return self._table


class _Flight(Watch):
    """A watch that leaves the graph whole: parameters get their gradients as in any training step."""

    def __init__(self, *args: Any, share: bool, ledger: Ledger) -> None:
        super().__init__(*args)
        self.share, self.ledger = share, ledger
        # the step's own graph is gone when derived tensors are differentiated: they get one of their own
        self.roots = {key: tensor.detach().requires_grad_() for key, tensor in self.watched.items()}

    def run(self, use: Use, args: Any, kwargs: dict[str, Any], cut: tuple[Any, dict[str, Any]]) -> Any:
        """As written, or, where the rule builds gradients anyway, through a node that hands them on."""
        if self.share and use.call.lone and use.rule.shares(use):
            output = use.call.func(*cut[0], **cut[1])
            parameters = [self.watched[source] for source in use.sources.values()]
            return Carry.apply(output, use, self.ledger.settle, *parameters)  # type: ignore[no-untyped-call]
        return use.call.func(*args, **kwargs)

    def fused(self, use: Use, live: Tensor) -> Tensor | None:
        """Only where gradients may come from elsewhere than the ordinary backward pass."""
        if not (self.share and use.call.lone):
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
    norms = FlightNorms(1.0 / loss_scale)
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
            raise InputError(
                f"The forward pass must take the same course for a batch as for one example ({problem}); "
                "in flight there is no loop to fall back to. Use example_gradient_norms between steps."
            ) from problem
        lone = watch.ledger.lone_sources()
        for use in watch.uses:
            use.call.lone = all(source in lone for source in use.sources.values())

    def _known(self, watched: dict[int, Tensor], args: Any, kwargs: dict[str, Any], n: int) -> Rehearsed:
        known = _rehearsed.setdefault(self.model, {})
        shapes = tuple((t.shape[1:], t.dtype) for t in tensors_of((args, kwargs)))
        key = (shapes, self.model.training, self.share, frozenset(self.chosen))
        if key not in known:
            if n < 2:
                raise InputError("The first batch in flight must hold at least two examples; it holds one.")
            known[key] = self._formatted(watched, (rows(args, 0, 1), rows(kwargs, 0, 1)))
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
        mode = Rehearsal(watched, {})
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        with torch.random.fork_rng(), torch.enable_grad(), mode:
            self.model.forward(*args, **kwargs)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        return mode.script
