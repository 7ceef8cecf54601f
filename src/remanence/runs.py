"""An open run: the object to work with from Python. Every method is what one command does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remanence.audit.auditing import Audit, audit_runs
from remanence.experiments import TuneSettings, Tuning, UnlearnSettings, tune, unlearn_run
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
from remanence.training import open_run as open_run_folder
from remanence.training import train_run as train_run_folder
from remanence.types import ForgetSet, Ids, as_ids

Examples = ForgetSet | Ids | Sequence[int] | Sequence[str]
"""Some examples: a forget set, or their ids."""


class Run(RunFolder):
    """A trained model in a folder, with its data and its trace.

    `open_run` opens one, `train_run` makes one. `model()`, `data()`, `trace()` and `task` give its parts.
    """

    @classmethod
    def of(cls, run: RunFolder) -> Run:
        """The same run with the methods below."""
        return run if isinstance(run, cls) else cls(run.folder, run.settings, run.unlearning, run.builder)

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

    def tune(self, method: str, *, out: str | Path, resume: bool = False, **settings: Any) -> Tuning:
        """Choose a method's hyperparameters on a random forget set, against oracles.

        Args:
            method: name of the method.
            out: folder of the tuning.
            resume: continue an unfinished tuning.
            settings: further fields of `TuneSettings`, such as `trials` or `ranges`.
        """
        return tune(self, TuneSettings(method, **settings), Path(out), resume=resume)

    def calibrate(self, *, workers: int = 1, **settings: Any) -> Calibration:
        """Train reference models and unlearn forget sets, so that requests can be planned.

        Args:
            workers: number of processes.
            settings: fields of `CalibrationSettings`, such as `models` or `sets`.
        """
        return calibrate(self, CalibrationSettings(**settings), workers=workers)

    def plan(self, examples: Examples | str | Path) -> Plan:
        """Estimate the steps, time and cost of a deletion request; changes nothing.

        Args:
            examples: what to remove; also the path of a file that lists the ids.
        """
        return make_plan(self, self._request(examples))

    def forget(self, examples: Examples | str | Path, *, out: str | Path, **options: Any) -> ForgetResult:
        """Carry out a deletion request: unlearn until the criterion holds, audit, and write the evidence.

        Args:
            examples: what to remove; also the path of a file that lists the ids.
            out: folder of the new run.
            options: fields of `ForgetOptions`, such as `key` or `budget`.
        """
        result = forget(self, self._request(examples), Path(out), ForgetOptions(**options))
        return replace(result, run=Run.of(result.run))

    def audit(self, examples: Examples, *, oracles: Sequence[RunFolder] = (), **options: Any) -> Audit:
        """Measure how well this run has forgotten some examples.

        Args:
            examples: what it should have forgotten.
            oracles: runs that were never trained on any of them.
            options: `metrics`, `tolerance` and `shadows` of `audit_runs`.
        """
        (audit,) = audit_runs([self], _forget_set(examples), oracles, **options)
        return audit

    def _request(self, examples: Examples | str | Path) -> Request:
        if isinstance(examples, str | Path):
            return read_request(Path(examples), self)
        return make_request(_forget_set(examples), self)


def open_run(path: str | Path, *, task: Task | None = None) -> Run:
    """Open a finished run.

    Args:
        path: the folder.
        task: builds the model, instead of the import path in the run's settings. Without it, an import path is executed
            only if this folder is trusted (`remanence trust`).
    """
    return Run.of(open_run_folder(path, builder=None if task is None else task.model))


def train_run(settings: RunSettings, out: str | Path, *, resume: bool = False, **options: Any) -> Run:
    """Train a model, record its trace, and leave a sealed run in `out`.

    Args:
        settings: data, model, recipe, and what to record.
        out: folder of the run.
        resume: continue an unfinished run from its last checkpoint.
        options: `ranks` and `progress` of the training loop.
    """
    train_run_folder(settings, Path(out), resume=resume, **options)
    return open_run(out)


def _forget_set(examples: Examples) -> ForgetSet:
    return examples if isinstance(examples, ForgetSet) else ForgetSet("request", as_ids(examples))
