"""Stages, their artifacts, and the processes that compute them."""

from remanence.study.scheduler import Failure, Tally, Watcher, compute_stages, run_stages
from remanence.study.stages import Stage, StageKind, in_order
from remanence.study.store import Store

__all__ = [
    "Failure",
    "Stage",
    "StageKind",
    "Store",
    "Tally",
    "Watcher",
    "compute_stages",
    "in_order",
    "run_stages",
]
