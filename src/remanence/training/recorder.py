"""Record what training leaves behind of each example, without disturbing it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import Dataset

from remanence.data import Examples, IdentifiedDataset, with_ids
from remanence.errors import InputError, RunFolderError
from remanence.gradients.losses import ExampleLoss
from remanence.storage import Draft, create, open_folder, seal_in_place, write_trace
from remanence.training.adaptive import TOLERANCE, affords, is_due, probe_positions
from remanence.training.observing import COLUMNS, Row, observe, observe_errors
from remanence.training.placement import Placement, candidate_steps
from remanence.training.ranks import ALONE, Ranks
from remanence.types import Ids, Mechanism, NormTrace, as_ids

TRACE_FILES = ("trace.safetensors", "trace.json")


def in_memory(data: Examples | Dataset[Any]) -> Examples:
    """Examples as they are; any other data set read once, its positions as ids unless it has its own."""
    if isinstance(data, Examples):
        return data
    return (data if isinstance(data, IdentifiedDataset) else with_ids(data)).examples()


class Recorder:
    """Call `step()` after each optimizer step of your own loop; `finish()` gives the trace.

    At the initial model and at (up to) `checkpoints` later moments it makes one evaluation-mode pass over the
    examples and keeps gradient norm, confidence in the true class and error norm (EL2N) of each. It never
    changes training: same weights, same random streams, the training mode restored.

    Args:
        model: the model being trained, as it is before the first step (or after `start` steps).
        examples: its training examples; any data set of (input, label) pairs, best through `rm.with_ids`.
        total_steps: optimizer steps that training will take.
        mechanism: how it trains, for the accounting later.
        checkpoints: moments to record after the start, the paper takes 35; at most so many when adaptive.
        placement: `adaptive` records when the order of a few probes' errors has changed; `even` is the paper's;
            `log` records densely early.
        ids: record only these examples.
        loss: of one example; a name, or a function (outputs, targets) -> one loss an example.
        out: keep the rows on disk in this folder, so that memory stays flat and a resumed run finds them;
            `finish` makes it a run that `remanence score` reads.
        start: steps already taken, when a run goes on; rows up to there come from `out`.
        provenance: facts to keep with the trace.
        ranks: the processes that share the work.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples | Dataset[Any],
        *,
        total_steps: int,
        mechanism: Mechanism,
        checkpoints: int = 35,
        placement: Placement = "adaptive",
        ids: Sequence[int] | Sequence[str] | Ids | None = None,
        loss: str | ExampleLoss = "cross_entropy",
        out: str | Path | None = None,
        start: int = 0,
        provenance: Mapping[str, str] | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._model, self._loss, self._ranks = model, loss, ranks
        everyone = in_memory(examples)
        self._examples = everyone if ids is None else everyone.take(as_ids(ids))
        self._mechanism, self._provenance = mechanism, dict(provenance or {})
        self._placement, self._most = placement, checkpoints
        self._candidates = candidate_steps(total_steps, checkpoints, placement)
        self._probes = self._examples.take(self._examples.ids[probe_positions(len(self._examples))])
        self._out = None if out is None else Path(out)
        self._rows: dict[int, Row] = {}
        self._recorded: list[int] = []
        self._step = start
        self._take_over()

    def step(self) -> None:
        """One optimizer step has been taken."""
        self._step += 1
        if self._step in self._candidates and self._deserves_a_row():
            self._keep(self._step, observe(self._model, self._examples, loss=self._loss, ranks=self._ranks))

    def trace(self) -> NormTrace:
        """The trace of the whole run, once training has reached its end."""
        last = int(self._candidates[-1])
        if self._step < last:
            raise InputError(
                f"Training must reach step {last} before the recorder finishes; it is at {self._step}."
            )
        rows = [self._row(step) for step in self._recorded]
        columns: dict[str, Any] = {name: np.stack([row[name] for row in rows]) for name in COLUMNS}
        return NormTrace(
            self._examples.ids,
            np.array(self._recorded, dtype=np.int64),
            mechanism=self._mechanism,
            provenance=self._provenance,
            **columns,
        )

    def _deserves_a_row(self) -> bool:
        if self._placement != "adaptive" or self._step == self._candidates[-1]:
            return True
        # the initial model is one of them, and one place is kept for the end
        if not affords(len(self._recorded), self._most, self._step / int(self._candidates[-1])):
            return False
        then = self._row(self._recorded[-1])["error"][self._examples.positions(self._probes.ids)]
        now = observe_errors(self._model, self._probes, self._ranks)
        return is_due(self._step, self._recorded[-1], now, then, TOLERANCE)

    def finish(self) -> NormTrace:
        """The trace; with `out`, also written there, and the single rows cleared away."""
        trace = self.trace()
        if self._out is not None and self._ranks.first:
            write_trace(Draft(self._out), trace)
            seal_in_place(self._out, "training", TRACE_FILES)
            self.clear()
        return trace

    def clear(self) -> None:
        """Remove the single rows from disk, once they are in a trace."""
        if self._out is not None and self._ranks.first:
            shutil.rmtree(self._out / "rows", ignore_errors=True)

    def _take_over(self) -> None:
        """Begin at the initial model, or with the rows that an earlier start of this run left."""
        if self._step == 0:
            self.clear()
            self._ranks.wait()
            self._keep(0, observe(self._model, self._examples, loss=self._loss, ranks=self._ranks))
            return
        found = self._found()
        self._recorded = [step for step in found if step <= self._step]
        fixed = [] if self._placement == "adaptive" else self._candidates.tolist()
        for step in {0, *(each for each in fixed if each <= self._step)}:
            self._row(step)
        self._ranks.wait()
        for step in found:
            if step > self._step and self._out is not None and self._ranks.first:
                shutil.rmtree(self._path(step), ignore_errors=True)
        self._ranks.wait()

    def _found(self) -> list[int]:
        """The steps whose rows are on disk."""
        if self._out is None:
            return []
        return sorted(int(path.name.removeprefix("step-")) for path in (self._out / "rows").glob("step-*"))

    def _keep(self, step: int, row: Row) -> None:
        self._recorded.append(step)
        if self._out is None:
            self._rows[step] = row
        elif self._ranks.first:
            with create(self._path(step), "trace row") as draft:
                draft.tensors("row", row)
        if self._out is not None:
            self._ranks.wait()

    def _row(self, step: int) -> Row:
        if self._out is None:
            if step not in self._rows:
                raise InputError(
                    f"Resuming needs the rows recorded before; give the `out` they are in (step {step})."
                )
            return self._rows[step]
        try:
            return open_folder(self._path(step), "trace row").tensors("row")
        except RunFolderError as error:
            raise RunFolderError(f"The trace's row at step {step} is missing or damaged: {error}") from error

    def _path(self, step: int) -> Path:
        assert self._out is not None  # callers have checked
        return self._out / "rows" / f"step-{step:09d}"
