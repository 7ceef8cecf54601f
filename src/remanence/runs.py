"""An open run: the object to work with from Python. Every method is what one command does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from remanence.audit.auditing import Audit, audit_runs
from remanence.experiments import Relearning, TuneSettings, Tuning, UnlearnSettings, tune, unlearn_run
from remanence.forgetting import examples_of_user
from remanence.requests import (
    Calibration,
    CalibrationSettings,
    ForgetOptions,
    ForgetResult,
    Plan,
    Request,
    calibrate,
    forget,
    make_plan,
    make_request,
    read_request,
)
from remanence.scores import ScoreTable, score_table
from remanence.tasks import Task
from remanence.training import Run as RunFolder
from remanence.training import RunSettings
from remanence.training import import_run as import_run_folder
from remanence.training import open_run as open_run_folder
from remanence.training import train_run as train_run_folder
from remanence.training.import_run import Weights
from remanence.training.task_run import task_settings
from remanence.types import ForgetSet, Ids, as_ids

Examples = ForgetSet | Ids | Sequence[int] | Sequence[str]
"""Some examples: a forget set, or their ids."""
_RELEARNING = Relearning()


class Run(RunFolder):
    """A trained model in a folder, with its data and its trace.

    `open_run` opens one, `train_run` makes one. `model()`, `data()`, `trace()` and `task` give its parts.
    """

    @classmethod
    def of(cls, run: RunFolder) -> Run:
        """The same run with the methods below."""
        return run if isinstance(run, cls) else cls(run.folder, run.settings, run.unlearning, run.given_task)

    def scores(self, *names: str, **options: Any) -> ScoreTable:
        """Privacy loss and proxies of every training example, one column per score.

        Args:
            names: which scores, by their names in `SCORES`; by default all that the trace allows.
            options: `alphas`, `sigmas` and further arguments of the privacy loss.
        """
        return score_table(self.trace(), names, **options)

    def unlearn(
        self,
        examples: Examples,
        method: str,
        *,
        out: str | Path,
        options: Mapping[str, Any] | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> Run:
        """Unlearn some examples with one of `METHODS` into a new run, and measure on the way.

        Args:
            examples: what to unlearn.
            method: name of the method.
            out: folder of the new run.
            options: hyperparameters of the method.
            resume: continue an unfinished run.
            settings: further fields of `UnlearnSettings`, such as `steps`, `seed` or `metrics`.
        """
        chosen = UnlearnSettings(method, options or {}, **settings)
        return Run.of(unlearn_run(self, _forget_set(examples), chosen, Path(out), resume=resume))

    def tune(
        self,
        method: str,
        *,
        out: str | Path,
        resume: bool = False,
        executor: str = "process",
        address: str | None = None,
        **settings: Any,
    ) -> Tuning:
        """Choose a method's hyperparameters on a random forget set, against oracles.

        Args:
            method: name of the method.
            out: folder of the tuning.
            resume: continue an unfinished tuning.
            executor: `process` for processes of this machine, or `ray`.
            address: address of a running Ray cluster; by default Ray is started on this machine.
            settings: further fields of `TuneSettings`, such as `trials` or `ranges`.
        """
        chosen = TuneSettings(method, **settings)
        return tune(self, chosen, Path(out), resume=resume, executor=executor, address=address)

    def calibrate(
        self, *, workers: int = 1, executor: str = "process", address: str | None = None, **settings: Any
    ) -> Calibration:
        """Train reference models and unlearn forget sets, so that requests can be planned.

        Args:
            workers: number of processes.
            executor: `process` for processes of this machine, or `ray`.
            address: address of a running Ray cluster; by default Ray is started on this machine.
            settings: fields of `CalibrationSettings`, such as `models` or `sets`.
        """
        chosen = CalibrationSettings(**settings)
        return calibrate(self, chosen, workers=workers, executor=executor, address=address)

    def plan(self, examples: Examples | str | Path) -> Plan:
        """Estimate the steps, time and cost of a deletion request; changes nothing.

        Args:
            examples: what to remove; also the path of a file that lists the ids.
        """
        return make_plan(self, self._request(examples))

    def forget(
        self, examples: Examples | str | Path | Sequence[Path], *, out: str | Path, **options: Any
    ) -> ForgetResult:
        """Carry out a deletion request: unlearn until the criterion holds, audit, and write the evidence.

        Args:
            examples: what to remove; also the path of a file that lists the ids. Several paths are several requests,
                which are unlearned together.
            out: folder of the new run.
            options: fields of `ForgetOptions`, such as `key` or `budget`.
        """
        result = forget(self, self._requests(examples), Path(out), ForgetOptions(**options))
        return replace(result, run=Run.of(result.run))

    def audit(
        self,
        examples: Examples,
        *,
        oracles: Sequence[RunFolder] = (),
        relearning: Relearning | None = _RELEARNING,
        **options: Any,
    ) -> Audit:
        """Measure how well this run has forgotten some examples.

        Args:
            examples: what it should have forgotten.
            oracles: runs that were never trained on any of them.
            relearning: how copies of this run and of the oracles are fine-tuned to see what comes back; None to skip
                it. `remanence.experiments.relearning_cost` gives its cost.
            options: `metrics`, `tolerance`, `shadows` and `people` of `audit_runs`.
        """
        metrics = options.get("metrics") or ("relearn",)
        wanted = any(name.startswith("relearn") for name in metrics)
        (audit,) = audit_runs(
            [self], _forget_set(examples), oracles, relearning=relearning if wanted else None, **options
        )
        return audit

    def examples_of_user(self, user: str) -> ForgetSet:
        """All examples of one person that this run still holds, by the column of persons in its table."""
        return examples_of_user(self, user)

    def _requests(self, examples: Examples | str | Path | Sequence[Path]) -> list[Request]:
        if isinstance(examples, list | tuple) and any(isinstance(item, Path) for item in examples):
            return [read_request(Path(item), self) for item in examples]
        return [self._request(cast("Examples | str | Path", examples))]

    def _request(self, examples: Examples | str | Path) -> Request:
        if isinstance(examples, str | Path):
            return read_request(Path(examples), self)
        return make_request(_forget_set(examples), self)


def open_run(path: str | Path, *, task: Task | None = None, device: str | None = None) -> Run:
    """Open a finished run.

    Args:
        path: the folder.
        task: its task: model, data and loss, instead of the import path in the run's settings. Without it, an import
            path is executed only if this folder is trusted (`remanence trust`).
        device: where to compute: any torch device; by default that of `task`, or else the best of this machine.
    """
    return Run.of(open_run_folder(path, task=task, device=device))


def import_run(
    task: Task,
    weights: Weights | None = None,
    *,
    out: str | Path,
    **options: Any,
) -> Run:
    """Make a run of a model that was trained before; everything then works as with runs trained here.

    With several saved checkpoints the trace is made from them. With the final weights alone it has one checkpoint, and
    the status of every score says so.

    Args:
        task: model, data, loss and training of the model.
        weights: its state dict, or a file of it (`.safetensors`, `.pt`, `.pth`); by default the last checkpoint.
        out: folder of the new run.
        options: `checkpoints` (a folder of state dicts whose names end in their step), or `trace` (that of a
            `Recorder`); `past` (a `PastTraining`: batch size, steps, noise), `seed`, `progress`.
    """
    return Run.of(import_run_folder(task, weights, out=out, **options))


def train_run(
    settings: RunSettings | Task, out: str | Path, *, resume: bool = False, seed: int = 0, **options: Any
) -> Run:
    """Train a model, record its trace, and leave a sealed run in `out`.

    Args:
        settings: data, model, recipe, and what to record; or your own task, trained by its recipe or its `fit`.
        out: folder of the run.
        resume: continue an unfinished run from its last checkpoint.
        seed: random seed, if a task is given; settings have their own.
        options: `task`, `ranks` and `progress` of the training loop.
    """
    if isinstance(settings, Task):
        settings.check()
        options["task"] = settings
        settings = replace(task_settings(settings, seed), record=35)
    train_run_folder(settings, Path(out), resume=resume, **options)
    return open_run(out, task=options.get("task"), device=settings.device)


def _forget_set(examples: Examples) -> ForgetSet:
    return examples if isinstance(examples, ForgetSet) else ForgetSet("request", as_ids(examples))
