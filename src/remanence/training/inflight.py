"""Record from the training backward pass itself: no extra pass at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn
from torch.utils.data import Dataset

from remanence.data import Examples
from remanence.errors import DataError, InputError
from remanence.gradients.in_flight import norms_in_flight
from remanence.storage import create, write_trace
from remanence.tasks.recipe import couples_examples
from remanence.training.observing import confidence_and_error
from remanence.training.recorder import in_memory
from remanence.types import Ids, Mechanism, NormTrace, as_ids


class InflightRecorder:
    """Norms from the steps that use the examples anyway; one row an epoch, with each example's step beside it.

    ```python
    recorder = rm.InflightRecorder(model, train_set, epochs=30, mechanism=mechanism)
    for epoch in range(30):
        for inputs, labels, ids in loader:
            with recorder.batch(ids):
                loss = criterion(model(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
        recorder.epoch()
    trace = recorder.finish()
    ```

    A model whose layers couple examples (BatchNorm in training) is refused: there, an example has no gradient of
    its own.

    Args:
        model: the model being trained.
        examples: its training examples.
        epochs: passes over the data.
        mechanism: how it trains.
        reduction: how the loss joins the examples of a batch.
        share: let the norms share work with the backward pass: faster, gradients equal to rounding. False leaves
            the backward pass alone, bit for bit.
        out: write the trace there as a run.
        provenance: facts to keep with the trace.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples | Dataset[Any],
        *,
        epochs: int,
        mechanism: Mechanism,
        reduction: Literal["mean", "sum"] = "mean",
        share: bool = True,
        out: str | Path | None = None,
        provenance: Mapping[str, str] | None = None,
    ) -> None:
        if couples_examples(model.modules()):
            raise InputError(
                "Norms in flight need a model whose layers treat each example by itself; this one has BatchNorm. "
                "Use GroupNorm, or the ordinary Recorder, which looks at the model in evaluation mode."
            )
        self._model, self._examples = model, in_memory(examples)
        self._mechanism, self._provenance = mechanism, dict(provenance or {})
        self._reduction: Literal["mean", "sum"] = reduction
        self._share, self._out = share, None if out is None else Path(out)
        shape = (epochs, len(self._examples))
        self._columns = {
            name: np.full(shape, np.nan, np.float32) for name in ("norms", "confidence", "error")
        }
        self._moments = np.full(shape, -1, np.int64)
        self._ends: list[int] = []
        self._step = 0

    @contextmanager
    def batch(self, ids: Sequence[Any] | Ids | Tensor) -> Iterator[None]:
        """Put one step's forward and backward pass inside; `ids` name the rows of the batch."""
        names = as_ids(ids.numpy() if isinstance(ids, Tensor) else np.asarray(ids))
        rows = self._examples.positions(names)
        row = len(self._ends)
        if row >= len(self._moments):
            raise InputError(f"The recorder was made for {len(self._moments)} epochs; this is one more.")
        seen: list[Tensor] = []
        hook = self._model.register_forward_hook(lambda _m, _i, output: seen.append(output))
        try:
            with norms_in_flight(self._model, self._reduction, share=self._share) as norms:
                yield
        finally:
            hook.remove()
        values = norms.values.cpu().numpy()
        if len(values) != len(rows):
            raise DataError(f"The batch has {len(values)} examples; {len(rows)} ids were given for it.")
        labels = self._examples.labels[rows].to(seen[-1].device)
        confidence, error = confidence_and_error(seen[-1].detach(), labels)
        found = {"norms": values, "confidence": confidence.cpu().numpy(), "error": error.cpu().numpy()}
        for name, column in found.items():
            self._columns[name][row, rows] = column
        self._moments[row, rows] = self._step
        self._step += 1

    def epoch(self) -> None:
        """One pass over the data has been made; every example must have been in it."""
        row = len(self._ends)
        missing = self._moments[row] < 0
        if missing.any():
            raise DataError(
                f"Every example must be used once an epoch; in epoch {row} {int(missing.sum())} were not, "
                f"the first being id {self._examples.ids[missing][0]}."
            )
        self._ends.append(self._step)

    def finish(self) -> NormTrace:
        """The trace: row i is epoch i; `moments` says at which step each example's norm was taken."""
        if len(self._ends) != len(self._moments):
            raise InputError(
                f"Training must make {len(self._moments)} epochs before this; it made {len(self._ends)}."
            )
        trace = NormTrace(
            self._examples.ids,
            np.array(self._ends, dtype=np.int64),
            mechanism=self._mechanism,
            moments=self._moments,
            provenance=self._provenance,
            **self._columns,
        )
        if self._out is not None:
            with create(self._out, "training") as draft:
                write_trace(draft, trace)
        return trace
