"""The ways to per-example gradient norms that `norms.py` compares, and the passes they are compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import remanence as rm
from remanence.gradients import norms_in_flight
from remanence.gradients.norm_engine import NormEngine
from remanence.losses import cross_entropy
from remanence.machine import using_constants
from remanence.machine.norm_constants import BUILT_IN

Way = Callable[[], Tensor | None]
"""One pass over the batch; norms, or None for passes that give none."""


class RefusedError(Exception):
    """A peer that cannot do this model, and says so."""


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    def run() -> None:
        F.cross_entropy(model(x), y).backward()
        model.zero_grad(set_to_none=True)

    return run


def forward(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    def run() -> None:
        with torch.no_grad():
            F.cross_entropy(model(x), y)

    return run


def input_gradients(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    """The floor: no norms, only what any exact method needs."""
    frozen = copy.deepcopy(model).requires_grad_(False)

    def run() -> None:
        live = x.clone().requires_grad_()
        torch.autograd.grad(F.cross_entropy(frozen(live), y), live)

    return run


def remanence(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    """As in a sweep over a data set: the rehearsal and the check against the loop are behind us."""
    engine = NormEngine(model, cross_entropy, dict(model.named_parameters()))
    return lambda: torch.stack(list(engine.squared_norms(x, y).values())).sum(0).sqrt()


def remanence_built_in(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    """The same with the built-in constants, where others were measured on this machine."""
    run = remanence(model, x, y)

    def with_built_in() -> Tensor | None:
        with using_constants(BUILT_IN):
            return run()

    return with_built_in


def remanence_single_calls(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    """Batch by batch in one's own loop: from the second call on, what was learned about the model is reused."""
    return lambda: rm.example_gradient_norms(model, x, y, batch_size=len(x))


def loop(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    def run() -> Tensor:
        norms = []
        for i in range(len(x)):
            F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            norms.append(torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt())
            model.zero_grad(set_to_none=True)
        return torch.stack(norms)

    return run


def vmapped(chunk: int) -> Callable[[nn.Module, Tensor, Tensor], Way]:
    def build(model: nn.Module, x: Tensor, y: Tensor) -> Way:
        parameters = {k: v.detach() for k, v in model.named_parameters()}
        buffers = dict(model.named_buffers())

        def loss(parameters: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
            out = torch.func.functional_call(model, (parameters, buffers), (one[None],))
            return F.cross_entropy(out, target[None])

        mapped = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), chunk_size=chunk)

        def run() -> Tensor:
            gradients = mapped(parameters, x, y)
            return torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()

        return run

    return build


def opacus(ghost: bool) -> Callable[[nn.Module, Tensor, Tensor], Way]:
    def build(model: nn.Module, x: Tensor, y: Tensor) -> Way:
        from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping

        if any(isinstance(m, nn.BatchNorm2d) for m in model.modules()):
            raise RefusedError("refuses BatchNorm")
        own = copy.deepcopy(model).train()
        if ghost:
            wrapped: Any = GradSampleModuleFastGradientClipping(
                own, max_grad_norm=1.0, use_ghost_clipping=True
            )
        else:
            wrapped = GradSampleModule(own)

        def run() -> Tensor:
            F.cross_entropy(wrapped(x), y).backward()
            if ghost:
                norms = wrapped.get_norm_sample().detach()
            else:
                rows = [p.grad_sample.flatten(1).square().sum(1) for p in own.parameters()]
                norms = torch.stack(rows).sum(0).sqrt()
            wrapped.zero_grad(set_to_none=True)
            return norms

        return run

    return build


def backpack(model: nn.Module, x: Tensor, y: Tensor) -> Way:
    from backpack import backpack as extended
    from backpack import extend
    from backpack.extensions import BatchL2Grad

    own = extend(copy.deepcopy(model), use_converter=not isinstance(model, nn.Sequential)).eval()
    loss = extend(nn.CrossEntropyLoss(reduction="sum"))

    def run() -> Tensor:
        with extended(BatchL2Grad()):
            loss(own(x), y).backward()
        norms = torch.stack([p.batch_l2 for p in own.parameters()]).sum(0).sqrt()
        own.zero_grad(set_to_none=True)
        return norms

    return run


WAYS: dict[str, Callable[[nn.Module, Tensor, Tensor], Way]] = {
    "forward only": forward,
    "forward + input gradients": input_gradients,
    "Remanence": remanence,
    "Remanence, built-in constants": remanence_built_in,
    "Remanence, single calls": remanence_single_calls,
    "loop of one": loop,
    "torch.func, chunk 4": vmapped(4),
    "torch.func, chunk 16": vmapped(16),
    "torch.func, chunk 32": vmapped(32),
    "Opacus, hooks": opacus(ghost=False),
    "Opacus, ghost": opacus(ghost=True),
    "BackPACK": backpack,
}


def training_step(model: nn.Module, x: Tensor, y: Tensor, share: bool | None) -> Way:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def run() -> Tensor | None:
        optimizer.zero_grad()
        norms = None
        if share is None:
            F.cross_entropy(model(x), y).backward()
        else:
            with norms_in_flight(model, share=share) as flight:
                F.cross_entropy(model(x), y).backward()
            norms = flight.values
        optimizer.step()
        return norms

    return run
