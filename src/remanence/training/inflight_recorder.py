"""Record a trace from the backward passes of training, without extra passes."""

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
from remanence.tasks import as_examples
from remanence.tasks.recipe import couples_examples
from remanence.training.example_statistics import confidence_and_error
from remanence.training.sharded import refuse_wrapped
from remanence.types import Ids, Mechanism, Trace, as_ids


class InflightRecorder:
    """Records gradient norms from the training steps themselves: one row per epoch, one norm per example.

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

    Models with BatchNorm are refused: in training mode it couples examples, so that an example has no gradient of its
    own.

    Args:
        model: the model that is trained.
        examples: its training examples.
        epochs: number of epochs.
        mechanism: how it is trained.
        reduction: how the loss reduces the examples of a batch.
        share: let the norms share work with the backward pass, which is faster and changes gradients by rounding
            errors. False leaves the gradients bitwise unchanged.
        out: folder to write the trace to, as a run.
        provenance: further information to keep with the trace.
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
        refuse_wrapped(model)
        if couples_examples(model.modules()):
            raise InputError(
                "In-flight norms need a model whose layers do not couple examples; this one has BatchNorm. "
                "Use GroupNorm, or Recorder, which evaluates the model in evaluation mode."
            )
        self._model, self._examples = model, as_examples(examples)
        self._mechanism, self._provenance = mechanism, dict(provenance or {})
        self._reduction: Literal["mean", "sum"] = reduction
        self._share, self._out = share, None if out is None else Path(out)
        shape = (epochs, len(self._examples))
        self._tables = {name: np.full(shape, np.nan, np.float32) for name in ("norms", "confidence", "error")}
        self._moments = np.full(shape, -1, np.int64)
        self._epoch_ends: list[int] = []
        self._step = 0

    @contextmanager
    def batch(self, ids: Sequence[Any] | Ids | Tensor) -> Iterator[None]:
        """Record the forward and backward pass of one step.

        Args:
            ids: ids of the examples in the batch, in order.
        """
        batch_ids = as_ids(ids.numpy() if isinstance(ids, Tensor) else np.asarray(ids))
        columns = self._examples.positions(batch_ids)
        epoch = len(self._epoch_ends)
        if epoch >= len(self._moments):
            raise InputError(f"Expected {len(self._moments)} epochs; this batch is in one more.")
        outputs: list[Tensor] = []
        hook = self._model.register_forward_hook(lambda _m, _i, output: outputs.append(output))
        try:
            with norms_in_flight(self._model, self._reduction, share=self._share) as norms:
                yield
        finally:
            hook.remove()
        if len(norms.values) != len(columns):
            raise DataError(
                f"Expected one id per example of the batch, {len(norms.values)}; got {len(columns)}."
            )
        labels = self._examples.labels[columns].to(outputs[-1].device)
        confidence, error = confidence_and_error(self._examples.readout, outputs[-1].detach(), labels)
        for name, values in (("norms", norms.values), ("confidence", confidence), ("error", error)):
            self._tables[name][epoch, columns] = values.cpu().numpy()
        self._moments[epoch, columns] = self._step
        self._step += 1

    def epoch(self) -> None:
        """End an epoch; every example must have been used in it."""
        epoch = len(self._epoch_ends)
        missing = self._moments[epoch] < 0
        if missing.any():
            raise DataError(
                f"Every example must be used once per epoch; in epoch {epoch} {int(missing.sum())} were not, "
                f"the first is id {self._examples.ids[missing][0]}."
            )
        self._epoch_ends.append(self._step)

    def finish(self) -> Trace:
        """The trace. Row i is epoch i; `moments` holds the step at which each norm was taken."""
        if len(self._epoch_ends) != len(self._moments):
            raise InputError(
                f"Training must take {len(self._moments)} epochs before `finish`; it took {len(self._epoch_ends)}."
            )
        trace = Trace(
            self._examples.ids,
            np.array(self._epoch_ends, dtype=np.int64),
            mechanism=self._mechanism,
            moments=self._moments,
            provenance=self._provenance,
            **self._tables,
        )
        if self._out is not None:
            with create(self._out, "training") as draft:
                write_trace(draft, trace)
        return trace
