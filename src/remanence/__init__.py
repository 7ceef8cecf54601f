"""Remanence: how hard is each training example to forget, and the shortest way to forget it.

The idiomatic import is ``import remanence as rm``. Names load on first use, so importing the package
costs nothing that is not needed (torch among it).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remanence._version import __version__

if TYPE_CHECKING:
    from remanence.audit.auditing import Audit as Audit
    from remanence.audit.auditing import audit_runs as audit_runs
    from remanence.audit.barrier import Barrier as Barrier
    from remanence.audit.barrier import loss_barrier as loss_barrier
    from remanence.audit.permutations import match_permutations as match_permutations
    from remanence.data import Examples as Examples
    from remanence.data import Split as Split
    from remanence.data import load_dataset as load_dataset
    from remanence.data import with_ids as with_ids
    from remanence.errors import DataError as DataError
    from remanence.errors import DataWarning as DataWarning
    from remanence.errors import InputError as InputError
    from remanence.errors import NumericalError as NumericalError
    from remanence.errors import RemanenceError as RemanenceError
    from remanence.errors import RunFolderError as RunFolderError
    from remanence.errors import UnknownNameError as UnknownNameError
    from remanence.experiments import Duration as Duration
    from remanence.experiments import DurationSummary as DurationSummary
    from remanence.experiments import TuneSettings as TuneSettings
    from remanence.experiments import UnlearnSettings as UnlearnSettings
    from remanence.experiments import kaplan_meier as kaplan_meier
    from remanence.experiments import summarize as summarize
    from remanence.experiments import time_to_unlearn as time_to_unlearn
    from remanence.experiments import tune as tune
    from remanence.experiments import unlearn_run as unlearn_run
    from remanence.forgetting import bands as bands
    from remanence.forgetting import easiest as easiest
    from remanence.forgetting import hardest as hardest
    from remanence.forgetting import random_set as random_set
    from remanence.forgetting import read_forget_set as read_forget_set
    from remanence.gradients import FallbackWarning as FallbackWarning
    from remanence.gradients import dataset_gradient_norms as dataset_gradient_norms
    from remanence.gradients import example_gradient_norms as example_gradient_norms
    from remanence.gradients import example_gradients_gram as example_gradients_gram
    from remanence.gradients import norms_in_flight as norms_in_flight
    from remanence.requests import CalibrationSettings as CalibrationSettings
    from remanence.requests import Plan as Plan
    from remanence.requests import calibrate as calibrate
    from remanence.requests import forget as forget
    from remanence.requests import make_plan as make_plan
    from remanence.requests import read_request as read_request
    from remanence.requests import verify_evidence as verify_evidence
    from remanence.tasks.recipe import Recipe as Recipe
    from remanence.theory.convergence import epsilon_after as epsilon_after
    from remanence.theory.convergence import steps_to_unlearn as steps_to_unlearn
    from remanence.theory.group import group_loss as group_loss
    from remanence.theory.langevin import Langevin as Langevin
    from remanence.theory.privacy_loss import privacy_loss as privacy_loss
    from remanence.theory.privacy_loss import privacy_losses as privacy_losses
    from remanence.theory.privacy_loss import worst_case_loss as worst_case_loss
    from remanence.theory.sampled_gaussian import log_moment as log_moment
    from remanence.training.inflight_recorder import InflightRecorder as InflightRecorder
    from remanence.training.recorder import Recorder as Recorder
    from remanence.training.run_folder import Run as Run
    from remanence.training.run_folder import open_run as open_run
    from remanence.types import Bound as Bound
    from remanence.types import ForgetSet as ForgetSet
    from remanence.types import Measurement as Measurement
    from remanence.types import Mechanism as Mechanism
    from remanence.types import Scores as Scores
    from remanence.types import Status as Status
    from remanence.types import Trace as Trace
    from remanence.unlearning import METHODS as METHODS
    from remanence.unlearning import Method as Method
    from remanence.unlearning import make_method as make_method

_HOME = {
    "remanence.audit.auditing": ("Audit", "audit_runs"),
    "remanence.audit.barrier": ("Barrier", "loss_barrier"),
    "remanence.audit.permutations": ("match_permutations",),
    "remanence.data": ("Examples", "Split", "load_dataset", "with_ids"),
    "remanence.forgetting": ("bands", "easiest", "hardest", "random_set", "read_forget_set"),
    "remanence.errors": (
        "DataError",
        "DataWarning",
        "InputError",
        "NumericalError",
        "RemanenceError",
        "RunFolderError",
        "UnknownNameError",
    ),
    "remanence.requests": (
        "CalibrationSettings",
        "Plan",
        "calibrate",
        "forget",
        "make_plan",
        "read_request",
        "verify_evidence",
    ),
    "remanence.theory.convergence": ("epsilon_after", "steps_to_unlearn"),
    "remanence.theory.group": ("group_loss",),
    "remanence.theory.langevin": ("Langevin",),
    "remanence.theory.privacy_loss": ("privacy_loss", "privacy_losses", "worst_case_loss"),
    "remanence.theory.sampled_gaussian": ("log_moment",),
    "remanence.gradients": (
        "FallbackWarning",
        "dataset_gradient_norms",
        "example_gradient_norms",
        "example_gradients_gram",
        "norms_in_flight",
    ),
    "remanence.training.inflight_recorder": ("InflightRecorder",),
    "remanence.training.run_folder": ("Run", "open_run"),
    "remanence.tasks.recipe": ("Recipe",),
    "remanence.training.recorder": ("Recorder",),
    "remanence.experiments": (
        "Duration",
        "DurationSummary",
        "TuneSettings",
        "UnlearnSettings",
        "kaplan_meier",
        "summarize",
        "time_to_unlearn",
        "tune",
        "unlearn_run",
    ),
    "remanence.unlearning": ("METHODS", "Method", "make_method"),
    "remanence.types": ("Bound", "ForgetSet", "Measurement", "Mechanism", "Trace", "Scores", "Status"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'remanence' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
