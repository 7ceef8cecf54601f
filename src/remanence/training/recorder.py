"""Record a trace during training, without changing the training."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from remanence.data import Examples
from remanence.errors import InputError, RunFolderError
from remanence.losses import ExampleLoss, loss_function
from remanence.storage import SEAL, TRACE_FILES, Draft, create, open_folder, seal_in_place, write_trace
from remanence.tasks import ASSUMED_SIGMA, Task, as_examples
from remanence.training.example_statistics import Row, error_norms, example_statistics, trace_from_rows
from remanence.training.mechanism_notes import noted_mechanism
from remanence.training.placement import Placement, candidate_steps, is_due, probe_positions, within_budget
from remanence.training.ranks import Ranks
from remanence.training.sharded import check_recordable, ranks_of, whole_model
from remanence.training.task_run import write_task_run
from remanence.types import Ids, Mechanism, Trace, as_ids


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

    Args:
        model: the model that is trained, before its first step (or after `start` steps).
        examples: its training examples, or a data set, preferably from `rm.with_ids`; by default those of `task`.
        total_steps: number of optimizer steps that training will take.
        mechanism: how it is trained, for the accounting; by default as the recipe of `task` says.
        task: the task of the model; with `out`, `finish` then leaves a run with model and task, which can be planned
            for, unlearned and audited.
        checkpoints: number of checkpoints after the start (35 in the paper); a maximum if adaptive.
        placement: `adaptive` records when the order of the errors of a few examples has changed; `even` as in the
            paper; `log` records more often at the start.
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
        checkpoints: int = 35,
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
        loaded = _examples_to_record(examples, task)
        if loss is not None:
            loaded = loaded.with_readout(replace(loaded.readout, loss=loss_function(loss)))
        self._examples = loaded if ids is None else loaded.take(as_ids(ids))
        stated = _checked_mechanism(mechanism, task, len(loaded), model, total_steps)
        self._mechanism = noted_mechanism(stated, model, optimizer, departures)
        given = dict(provenance or {})
        self._provenance = given if "data" in given else {"data": loaded.digest(), **given}
        self._placement, self._checkpoints = placement, checkpoints
        self._candidates = candidate_steps(total_steps, checkpoints, placement)
        self._probes = self._examples.take(self._examples.ids[probe_positions(len(self._examples))])
        self._out = None if out is None else Path(out)
        self._folder = Path(rows) if rows is not None else None if self._out is None else self._out / "rows"
        if self._out is not None and ranks.first:
            _check_folder(self._out, resumed=start > 0)
        ranks.wait()
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
        if self._folder is not None and self._ranks.first:
            shutil.rmtree(self._folder, ignore_errors=True)

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
        if self._folder is None:
            return []
        return sorted(int(path.name.removeprefix("step-")) for path in self._folder.glob("step-*"))

    def _record(self) -> None:
        with whole_model(self._model, self._task, self._ranks) as model:
            row = example_statistics(model, self._examples, ranks=self._ranks)
        self._recorded.append(self._step)
        if self._folder is None:
            self._rows[self._step] = row
        elif self._ranks.first:
            with create(self._path(self._step), "trace row") as draft:
                draft.tensors("row", row)
        if self._folder is not None:
            self._ranks.wait()

    def _row(self, step: int) -> Row:
        if self._folder is None:
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
        assert self._folder is not None  # callers have checked
        return self._folder / f"step-{step:09d}"


def _examples_to_record(examples: Examples | Dataset[Any] | None, task: Task | None) -> Examples:
    if examples is None:
        if task is None:
            raise InputError("Give `examples` or `task`: the recorder must know the training examples.")
        return task.train
    loaded = as_examples(examples)
    return loaded if task is None else loaded.with_readout(task.train.readout)


def _checked_mechanism(
    mechanism: Mechanism | None, task: Task | None, n: int, model: nn.Module, total_steps: int
) -> Mechanism:
    if mechanism is None:
        if task is None or task.fit is not None:
            raise InputError(
                "Give the `mechanism`: how training draws batches and which noise it adds. Scores cannot be computed "
                "without it."
            )
        mechanism = task.recipe.mechanism(n, assumed_sigma=ASSUMED_SIGMA, model=model)
    if mechanism.steps != total_steps:
        raise InputError(
            f"`mechanism` and `total_steps` must agree on the number of optimizer steps; got {mechanism.steps} and "
            f"{total_steps}."
        )
    return mechanism


def _check_folder(out: Path, *, resumed: bool) -> None:
    """Refuse a folder that holds a finished run or, for a new recording, files that no recorder has written."""
    if (out / SEAL).exists():
        raise RunFolderError(f"{out} holds a finished run; pass a new folder as `out`. Nothing was changed.")
    if resumed:
        return
    others = [path.name for path in out.iterdir() if path.name != "rows"] if out.is_dir() else []
    inside = list((out / "rows").iterdir()) if (out / "rows").is_dir() else []
    others += [f"rows/{path.name}" for path in inside if not path.name.startswith(("step-", ".partial-"))]
    if others:
        raise RunFolderError(
            f"`out` must be a new folder, or that of an interrupted recording; {out} holds {sorted(others)[0]}. "
            "Nothing was changed."
        )
