"""Remanence: how hard is each training example to forget, and the shortest way to forget it.

The idiomatic import is ``import remanence as rm``. Names load on first use, so importing the package is cheap and does
not load torch. Formulas are in ``rm.theory``, exceptions in ``rm.errors``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from remanence._version import __version__

if TYPE_CHECKING:
    from remanence import errors as errors
    from remanence import losses as losses
    from remanence import theory as theory
    from remanence.audit import METRICS as METRICS
    from remanence.audit import Audit as Audit
    from remanence.audit import audit_runs as audit_runs
    from remanence.audit import loss_barrier as loss_barrier
    from remanence.data import Examples as Examples
    from remanence.data import load_dataset as load_dataset
    from remanence.data import with_ids as with_ids
    from remanence.errors import InputError as InputError
    from remanence.errors import RemanenceError as RemanenceError
    from remanence.experiments import TuneSettings as TuneSettings
    from remanence.experiments import UnlearnSettings as UnlearnSettings
    from remanence.forgetting import read_forget_set as read_forget_set
    from remanence.gradients import dataset_gradient_norms as dataset_gradient_norms
    from remanence.gradients import example_gradient_norms as example_gradient_norms
    from remanence.memory import keep_freed_memory as keep_freed_memory
    from remanence.requests import CalibrationSettings as CalibrationSettings
    from remanence.requests import ForgetOptions as ForgetOptions
    from remanence.requests import ForgetResult as ForgetResult
    from remanence.requests import Plan as Plan
    from remanence.requests import purge as purge
    from remanence.requests import verify_evidence as verify_evidence
    from remanence.runs import Run as Run
    from remanence.runs import import_run as import_run
    from remanence.runs import open_run as open_run
    from remanence.runs import train_run as train_run
    from remanence.scores import SCORES as SCORES
    from remanence.tasks import Recipe as Recipe
    from remanence.tasks import Task as Task
    from remanence.training import Recorder as Recorder
    from remanence.training import RunSettings as RunSettings
    from remanence.types import Bound as Bound
    from remanence.types import ForgetSet as ForgetSet
    from remanence.types import Measurement as Measurement
    from remanence.types import Mechanism as Mechanism
    from remanence.types import Scores as Scores
    from remanence.types import Status as Status
    from remanence.types import Trace as Trace
    from remanence.unlearning import METHODS as METHODS

_MODULES = ("errors", "losses", "theory")
_OPTIONAL = ("huggingface", "lightning")
"""Modules that need packages which Remanence does not install."""
_HOME = {
    "remanence.audit": ("METRICS", "Audit", "audit_runs", "loss_barrier"),
    "remanence.data": ("Examples", "load_dataset", "with_ids"),
    "remanence.errors": ("InputError", "RemanenceError"),
    "remanence.experiments": ("TuneSettings", "UnlearnSettings"),
    "remanence.forgetting": ("read_forget_set",),
    "remanence.gradients": ("dataset_gradient_norms", "example_gradient_norms"),
    "remanence.memory": ("keep_freed_memory",),
    "remanence.requests": (
        "CalibrationSettings",
        "ForgetOptions",
        "ForgetResult",
        "Plan",
        "purge",
        "verify_evidence",
    ),
    "remanence.runs": ("Run", "import_run", "open_run", "train_run"),
    "remanence.scores": ("SCORES",),
    "remanence.tasks": ("Recipe", "Task"),
    "remanence.training": ("Recorder", "RunSettings"),
    "remanence.types": ("Bound", "ForgetSet", "Measurement", "Mechanism", "Scores", "Status", "Trace"),
    "remanence.unlearning": ("METHODS",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted([*_MODULE_OF, *_MODULES])]


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _OPTIONAL:
        return import_module(f"remanence.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'remanence' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
