"""Record a trace during training, without changing the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from remanence.batches import device_of
from remanence.data import Examples
from remanence.errors import DataError, InputError
from remanence.gradients.in_flight import FlightNorms, norms_in_flight
from remanence.losses import ExampleLoss, loss_function
from remanence.storage import TRACE_FILES, Draft, seal_in_place, write_trace
from remanence.tasks import Task
from remanence.training.example_statistics import (
    Row,
    captured_outputs,
    confidence_and_error,
    error_norms,
    example_statistics,
    trace_from_rows,
)
from remanence.training.mechanism_notes import noted_mechanism
from remanence.training.overhead_plan import OverheadPlan
from remanence.training.placement import (
    Placement,
    candidate_steps,
    is_due,
    period_ends,
    probe_positions,
    within_budget,
)
from remanence.training.ranks import Ranks
from remanence.training.recorder_inputs import (
    can_fly,
    check_folder,
    checked_mechanism,
    examples_to_record,
    rows_of,
)
from remanence.training.row_store import RowStore
from remanence.training.sharded import check_recordable, ranks_of, refuse_wrapped, whole_model
from remanence.training.step_signals import StepSignals
from remanence.training.task_run import write_task_run
from remanence.types import Ids, Mechanism, Reduction, Trace, as_ids

CHECKPOINTS = 35
"""Number of checkpoints after the start by default, as in the paper."""


class Recorder:
    """Records a trace in your own training loop: call `step()` after each optimizer step, then `finish()`.

    At the initial model and at up to `checkpoints` later steps, it makes one pass over the examples in evaluation mode
    and records the gradient norm, the confidence in the true class and the error norm (EL2N) of each example. It never
    changes the training: weights, random state and training mode stay the same.

    ```python
    recorder = rm.Recorder(model, task=task, total_steps=1000, mechanism=mechanism, out="run")
    for inputs, labels in batches:
        ...
        optimizer.step()
        recorder.step()
    recorder.finish()
    run = rm.open_run("run")
    ```

    With `overhead`, it measures what recording costs and keeps to that share of the training time. If each forward and
    backward pass is in a `batch` block, a model without BatchNorm is recorded in flight: some of the steps also yield
    the norms of their examples. Otherwise it makes exact passes. The errors that all other steps show fill the gaps;
    `trace.measured` says which norms were measured.

    ```python
    recorder = rm.Recorder(model, train_set, total_steps=1000, mechanism=mechanism, overhead=0.05)
    for inputs, labels, ids in batches:
        with recorder.batch(ids):
            loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        recorder.step()
    trace = recorder.finish()
    ```

    Args:
        model: the model that is trained, before its first step (or after `start` steps).
        examples: its training examples, or a data set, preferably from `rm.with_ids`; by default those of `task`.
        total_steps: number of optimizer steps that training will take.
        mechanism: how it is trained, for the accounting; by default as the recipe of `task` says.
        task: the task of the model; with `out`, `finish` then leaves a run with model and task, which can be planned
            for, unlearned and audited.
        checkpoints: number of checkpoints after the start (35 by default, as in the paper); a maximum if adaptive.
        overhead: largest share of the training time that recording may take, such as 0.05, instead of `checkpoints`;
            infinite to record everything. What is recorded then depends on the clock.
        in_flight: with `overhead`, whether to measure in the training steps (BatchNorm is refused) or in passes of its
            own; by default in the steps, if the model has no BatchNorm and `batch` is used.
        share: let norms in flight share work with the backward pass, which is faster and changes gradients by rounding
            errors. By default they stay bit for bit as they are.
        reduction: how the loss of a batch combines its examples, for norms in flight.
        placement: with `checkpoints`, `adaptive` records when the order of the errors of a few examples has changed;
            `even` as in the paper; `log` records more often at the start.
        ids: examples to record; all by default.
        loss: name of the loss, or a function (outputs, targets) -> one loss per example; by default that of the
            examples.
        out: a new folder to keep the rows in, which saves memory and lets a resumed run find them; `finish` makes it a
            run, whose trace `remanence score` reads.
        rows: folder to keep the rows in, instead of `out`, if somebody else writes the run.
        departures: what is special about this training, as sentences that become reasons of every status (mixup, or
            augmentation that the recorder cannot see).
        optimizer: the optimizer, so that its kind can be noted.
        seed: random seed of the training, which the run keeps.
        start: steps already taken if the training is resumed; earlier rows are read from `out`.
        provenance: further information to keep with the trace.
        ranks: the processes that share the work; by default all, if the model is under DistributedDataParallel or
            sharded by FSDP, otherwise this one. Each records its share of the examples; all must call `step` and
            `finish`.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples | Dataset[Any] | None = None,
        *,
        total_steps: int,
        mechanism: Mechanism | None = None,
        task: Task | None = None,
        checkpoints: int | None = None,
        overhead: float | None = None,
        in_flight: bool | None = None,
        share: bool = False,
        reduction: Reduction = "mean",
        placement: Placement = "adaptive",
        ids: Sequence[int] | Sequence[str] | Ids | None = None,
        loss: str | ExampleLoss | None = None,
        out: str | Path | None = None,
        start: int = 0,
        rows: str | Path | None = None,
        departures: Sequence[str] = (),
        optimizer: torch.optim.Optimizer | None = None,
        seed: int = 0,
        provenance: Mapping[str, str] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        check_recordable(model, task)
        ranks = ranks_of(model) if ranks is None else ranks
        self._model, self._task, self._ranks, self._seed = model, task, ranks, seed
        loaded = examples_to_record(examples, task)
        if loss is not None:
            loaded = loaded.with_readout(replace(loaded.readout, loss=loss_function(loss)))
        self._examples, self._some = loaded if ids is None else loaded.take(as_ids(ids)), ids is not None
        stated = checked_mechanism(mechanism, task, len(loaded), model, total_steps)
        self._mechanism = noted_mechanism(stated, model, optimizer, departures)
        given = dict(provenance or {})
        self._provenance = given if "data" in given else {"data": loaded.digest(), **given}
        self._placement = placement
        self._checkpoints = CHECKPOINTS if checkpoints is None else checkpoints
        self._plan: OverheadPlan | None = None
        if overhead is None:
            self._candidates = candidate_steps(total_steps, self._checkpoints, placement)
        else:
            if checkpoints is not None:
                raise InputError("Give `checkpoints` or `overhead`, not both: one follows from the other.")
            epoch_steps = 1 / stated.sampling_rate
            self._plan = OverheadPlan(overhead, total_steps, len(self._examples), epoch_steps, start)
            self._candidates = period_ends(total_steps, stated.sampling_rate)
        self._in_flight = can_fly(model, in_flight)
        self._share, self._reduction = share, reduction
        self._signals = StepSignals(self._examples.ids)
        self._probes = self._examples.take(self._examples.ids[probe_positions(len(self._examples))])
        self._out = None if out is None else Path(out)
        folder = Path(rows) if rows is not None else None if self._out is None else self._out / "rows"
        self._store = RowStore(folder, ranks)
        if self._out is not None and ranks.first:
            check_folder(self._out, resumed=start > 0)
        ranks.wait()
        self._recorded: list[int] = []
        self._step = start
        if start == 0:
            self._start()
        else:
            self._resume()

    @contextmanager
    def batch(self, ids: Sequence[Any] | Ids | Tensor) -> Iterator[None]:
        """Watch the forward and backward pass of a step, for a recorder with `overhead`.

        Args:
            ids: ids of the examples in the batch, in order.
        """
        if self._plan is None:
            raise InputError("`batch` is for recording within a budget; give the recorder an `overhead`.")
        plan = self._plan
        norms: FlightNorms | None = None
        with ExitStack() as hooks:
            with plan.upkeep():
                rows, columns = self._signals.positions(ids)
                recorded = self._in_flight and len(rows) > 0 and plan.records_step(columns, self._step)
                # a step may be so short that even its errors cost too much
                watched = len(rows) > 0 and (recorded or plan.allows_errors(self._step))
            with plan.spending():
                if not self._signals.seen:
                    refuse_wrapped(self._model)
                if len(rows) < len(ids) and not self._some:
                    raise DataError(
                        f"All {len(ids)} ids of the batch must be those of examples; {len(rows)} are."
                    )
                if watched:
                    outputs = hooks.enter_context(captured_outputs(self._model))
                if recorded:
                    flight = norms_in_flight(self._model, self._reduction, share=self._share)
                    norms = hooks.enter_context(flight)
            began = plan.clock()
            yield
            plan.note_step(columns, self._step, plan.clock() - began, recorded=recorded)
        if not watched:
            return
        with plan.spending():
            output = rows_of(outputs, torch.from_numpy(rows), len(ids))
            labels = self._examples.labels[columns].to(device_of(self._model))
            confidence, error = confidence_and_error(self._examples.readout, output, labels)
            values = None if norms is None else norms.values.cpu()[torch.from_numpy(rows)]
            self._signals.add(columns, self._step, confidence, error, values)

    def step(self) -> None:
        """Count an optimizer step, and record if it is a checkpoint."""
        self._step += 1
        if self._step not in self._candidates:
            return
        if self._plan is not None:
            with self._plan.spending():
                self._end_period(self._plan)
        elif self._is_checkpoint():
            self._record()

    def trace(self) -> Trace:
        """The trace of the whole training; an error before its end."""
        last = int(self._candidates[-1])
        if self._step < last:
            raise InputError(
                f"Training must reach step {last} before the recorder finishes; it is at {self._step}."
            )
        rows = [self._store.row(step) for step in self._recorded]
        noted = {**self._provenance, "recording": self.summary}
        return trace_from_rows(self._examples.ids, self._recorded, rows, self._mechanism, noted)

    @property
    def summary(self) -> str:
        """What was recorded so far, and, with `overhead`, its share of the training time."""
        if self._plan is None:
            return f"{len(self._recorded)} exact passes"
        steps = f"norms in flight at {self._plan.recorded_steps} of {self._step} steps"
        done = steps if self._flies else f"{self._plan.passes} exact passes"
        return f"{done}; {100 * self._plan.share:.1f} % of the training time"

    @property
    def _flies(self) -> bool:
        """Whether steps are recorded: they can be, and `batch` shows them."""
        return self._in_flight and self._signals.seen

    def _end_period(self, plan: OverheadPlan) -> None:
        """Keep the row of the steps in flight, or make a pass if the budget allows one."""
        with plan.upkeep():
            mean_square = self._signals.mean_square_error()
            row = self._signals.take_row()
            if mean_square is not None:
                plan.note_errors(mean_square)
        if self._flies:
            if self._step == self._candidates[-1]:
                self._measure_missing(row)
            with plan.upkeep():
                self._keep(row)
            return
        if self._ranks.decision_of_first(int(plan.makes_pass(self._step))):
            with plan.passing(self._step):
                self._record()
            if mean_square is None:
                errors = self._store.row(self._step)["error"].astype(np.float64)
                plan.note_errors(float(np.mean(errors**2)))
        elif mean_square is not None:
            del row["moments"]  # those of the passes are the steps of their rows
            self._keep(row)

    def _measure_missing(self, row: Row) -> None:
        """At the end, measure the examples that no step has measured."""
        known = ~np.isnan(row["norms"])
        for step in self._recorded:
            known |= ~np.isnan(self._store.row(step)["norms"])
        missing = np.flatnonzero(~known)
        if len(missing):
            part = self._examples.take(self._examples.ids[missing])
            for name, values in example_statistics(self._model, part).items():
                row[name][missing] = values
            row["moments"][missing] = self._step

    def _is_checkpoint(self) -> bool:
        end = int(self._candidates[-1])
        if self._placement != "adaptive" or self._step == end:
            return True
        # the initial model counts as recorded, which leaves one checkpoint for the end
        if not within_budget(len(self._recorded), self._checkpoints, self._step / end):
            return False
        last_step = self._recorded[-1]
        last_errors = self._store.row(last_step)["error"][self._examples.positions(self._probes.ids)]
        with whole_model(self._model, self._task, self._ranks) as model:
            errors = error_norms(model, self._probes, self._ranks)
        return is_due(self._step, last_step, errors, last_errors)

    def finish(self) -> Trace:
        """The trace of the whole training; also written to `out` if given."""
        trace = self.trace()
        if self._out is None:
            return trace
        with whole_model(self._model, self._task, self._ranks) as model:
            if self._ranks.first:
                self._write(self._out, model, trace)
        self.clear()
        self._ranks.wait()
        return trace

    def _write(self, out: Path, model: nn.Module, trace: Trace) -> None:
        if self._task is None:
            write_trace(Draft(out), trace)
            seal_in_place(out, "training", TRACE_FILES)
        else:
            write_task_run(out, self._task, model, trace, seed=self._seed)

    def clear(self) -> None:
        """Remove the single rows from disk."""
        self._store.clear()

    def _start(self) -> None:
        self._store.clear()
        self._ranks.wait()
        if self._plan is None:
            self._record()

    def _resume(self) -> None:
        """Continue from the rows on disk: all rows until now must be there, later ones are removed."""
        self._recorded = self._store.steps_until(self._step)
        fixed = [] if self._placement == "adaptive" else self._candidates.tolist()
        required = [] if self._plan is not None else [0, *(step for step in fixed if step <= self._step)]
        for step in required:
            self._store.row(step)

    def _record(self) -> None:
        """Make a pass over all examples and keep its row."""
        with whole_model(self._model, self._task, self._ranks) as model:
            self._keep(example_statistics(model, self._examples, ranks=self._ranks))

    def _keep(self, row: Row) -> None:
        self._store.keep(self._step, row)
        self._recorded.append(self._step)
