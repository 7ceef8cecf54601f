"""What a training step's norms are read from."""

from __future__ import annotations

import weakref
from typing import NoReturn

import torch
from torch import Tensor

from remanence.errors import InputError
from remanence.gradients.layout import DivergedError
from remanence.gradients.ledger import Ledger


class FlightNorms:
    """The per-example gradient norms of one training step, there once the backward pass is over."""

    def __init__(self, factor: float, kind: torch.dtype) -> None:
        self._ledger: Ledger | None = None
        self._factor, self._kind = factor, kind
        self._size = 1.0
        self._squares: dict[str, Tensor] | None = None
        self._missed: set[str] = set()

    @property
    def values(self) -> Tensor:
        """Tensor[n]: the norm of each example's own loss gradient."""
        return self._norms(torch.stack(list(self._settled().values())).sum(0))

    @property
    def by_parameter(self) -> dict[str, Tensor]:
        """The same for each parameter."""
        return {name: self._norms(row) for name, row in self._settled().items()}

    def _norms(self, squares: Tensor) -> Tensor:
        return (squares.sqrt() * self._size * self._factor).to(self._kind)

    def _settled(self) -> dict[str, Tensor]:
        """Squared norms by parameter, as they are in the loss that was differentiated."""
        if self._missed:
            raise InputError(
                f"Every parameter must be used through torch functions; `{sorted(self._missed)[0]}` got a "
                "gradient from something else (an assignment into a tensor, say, or an autograd.Function). "
                "Leave it out of `parameters`, or use example_gradient_norms between steps."
            )
        if self._squares is None:
            ledger = self._ledger
            if ledger is None or not any(use.reached or not use.args for use in ledger.watch.uses):
                raise InputError(
                    "Norms in flight are there after a forward and a backward pass inside the `with` block; "
                    "call loss.backward() before reading them."
                )
            try:
                ledger.finish()
            except DivergedError as problem:
                refuse_course(problem)
            self._squares = ledger.table
        return self._squares

    def _wait_for(self, name: str, parameter: Tensor) -> None:
        """Notice a gradient of a parameter that no call was seen to use."""
        missed = self._missed

        def note(gradient: Tensor) -> None:
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            if bool(values.any()):
                missed.add(name)

        handle = parameter.register_hook(note)  # type: ignore[no-untyped-call]
        weakref.finalize(self, handle.remove)


def refuse_course(problem: DivergedError) -> NoReturn:
    """In flight, a batch that takes another course than an example has no norms."""
    raise InputError(
        f"The forward pass must take the same course for a batch as for one example ({problem}); "
        "in flight there is no loop to fall back to. Use example_gradient_norms between steps."
    ) from problem
