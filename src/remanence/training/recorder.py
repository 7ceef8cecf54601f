"""Record a trace during training, without changing the training."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from remanence.data import Examples, IdentifiedDataset, with_ids
from remanence.errors import InputError, RunFolderError
from remanence.gradients.losses import ExampleLoss
from remanence.storage import TRACE_FILES, Draft, create, open_folder, seal_in_place, write_trace
from remanence.training.example_statistics import Row, error_norms, example_statistics, trace_from_rows
from remanence.training.placement import Placement, candidate_steps, is_due, probe_positions, within_budget
from remanence.training.ranks import SINGLE_PROCESS, Ranks
from remanence.types import Ids, Mechanism, Trace, as_ids


def as_examples(data: Examples | Dataset[Any]) -> Examples:
    """Load a data set into memory; the ids are positions unless the data set has ids."""
    if isinstance(data, Examples):
        return data
    return (data if isinstance(data, IdentifiedDataset) else with_ids(data)).examples()


class Recorder:
    """Records a trace in your own training loop: call `step()` after each optimizer step, then `finish()`.

    At the initial model and at up to `checkpoints` later steps, it makes one pass over the examples in evaluation mode
    and records the gradient norm, the confidence in the true class and the error norm (EL2N) of each example. It never
    changes the training: weights, random state and training mode stay the same.

    Args:
        model: the model that is trained, before its first step (or after `start` steps).
        examples: its training examples, or a data set of (input, label) pairs, preferably from `rm.with_ids`.
        total_steps: number of optimizer steps that training will take.
        mechanism: how it is trained, for the accounting.
        checkpoints: number of checkpoints after the start (35 in the paper); a maximum if adaptive.
        placement: `adaptive` records when the order of the errors of a few examples has changed; `even` as in the
            paper; `log` records more often at the start.
        ids: examples to record; all by default.
        loss: name of the loss, or a function (outputs, targets) -> one loss per example.
        out: folder to keep the rows in, which saves memory and lets a resumed run find them; `finish` makes it a run
            that `remanence score` reads.
        start: steps already taken if the training is resumed; earlier rows are read from `out`.
        provenance: further information to keep with the trace.
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
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self._model, self._loss, self._ranks = model, loss, ranks
        loaded = as_examples(examples)
        self._examples = loaded if ids is None else loaded.take(as_ids(ids))
        self._mechanism, self._provenance = mechanism, dict(provenance or {})
        self._placement, self._checkpoints = placement, checkpoints
        self._candidates = candidate_steps(total_steps, checkpoints, placement)
        self._probes = self._examples.take(self._examples.ids[probe_positions(len(self._examples))])
        self._out = None if out is None else Path(out)
        self._rows: dict[int, Row] = {}
        self._recorded: list[int] = []
        self._step = start
        if start == 0:
            self._start()
        else:
            self._resume()

    def step(self) -> None:
        """Count an optimizer step, and record if it is a checkpoint."""
        self._step += 1
        if self._step in self._candidates and self._is_checkpoint():
            self._record()

    def trace(self) -> Trace:
        """The trace of the whole training; an error before its end."""
        last = int(self._candidates[-1])
        if self._step < last:
            raise InputError(
                f"Training must reach step {last} before the recorder finishes; it is at {self._step}."
            )
        rows = [self._row(step) for step in self._recorded]
        return trace_from_rows(self._examples.ids, self._recorded, rows, self._mechanism, self._provenance)

    def _is_checkpoint(self) -> bool:
        end = int(self._candidates[-1])
        if self._placement != "adaptive" or self._step == end:
            return True
        # the initial model counts as recorded, which leaves one checkpoint for the end
        if not within_budget(len(self._recorded), self._checkpoints, self._step / end):
            return False
        last_step = self._recorded[-1]
        last_errors = self._row(last_step)["error"][self._examples.positions(self._probes.ids)]
        errors = error_norms(self._model, self._probes, self._ranks)
        return is_due(self._step, last_step, errors, last_errors)

    def finish(self) -> Trace:
        """The trace of the whole training; also written to `out` if given."""
        trace = self.trace()
        if self._out is not None and self._ranks.first:
            write_trace(Draft(self._out), trace)
            seal_in_place(self._out, "training", TRACE_FILES)
            self.clear()
        return trace

    def clear(self) -> None:
        """Remove the single rows from `out`."""
        if self._out is not None and self._ranks.first:
            shutil.rmtree(self._out / "rows", ignore_errors=True)

    def _start(self) -> None:
        self.clear()
        self._ranks.wait()
        self._record()

    def _resume(self) -> None:
        """Continue from the rows on disk: all rows until now must be there, later ones are removed."""
        on_disk = self._steps_on_disk()
        self._recorded = [step for step in on_disk if step <= self._step]
        fixed = [] if self._placement == "adaptive" else self._candidates.tolist()
        for required in {0, *(step for step in fixed if step <= self._step)}:
            self._row(required)
        self._ranks.wait()
        for step in on_disk:
            if step > self._step and self._ranks.first:
                shutil.rmtree(self._path(step), ignore_errors=True)
        self._ranks.wait()

    def _steps_on_disk(self) -> list[int]:
        if self._out is None:
            return []
        return sorted(int(path.name.removeprefix("step-")) for path in (self._out / "rows").glob("step-*"))

    def _record(self) -> None:
        row = example_statistics(self._model, self._examples, loss=self._loss, ranks=self._ranks)
        self._recorded.append(self._step)
        if self._out is None:
            self._rows[self._step] = row
        elif self._ranks.first:
            with create(self._path(self._step), "trace row") as draft:
                draft.tensors("row", row)
        if self._out is not None:
            self._ranks.wait()

    def _row(self, step: int) -> Row:
        if self._out is None:
            if step not in self._rows:
                raise InputError(
                    f"Resuming needs the rows recorded before, at step {step} for example; pass their folder as `out`."
                )
            return self._rows[step]
        try:
            return open_folder(self._path(step), "trace row").tensors("row")
        except RunFolderError as error:
            raise RunFolderError(f"The row of step {step} is missing or damaged: {error}") from error

    def _path(self, step: int) -> Path:
        assert self._out is not None  # callers have checked
        return self._out / "rows" / f"step-{step:09d}"
