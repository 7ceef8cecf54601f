"""Stages, their artifacts, and the processes that compute them."""

from remanence.stages.scheduler import Failure, Tally, Watcher, compute_stages, run_stages
from remanence.stages.stage import IN_KEY_IF_GIVEN, NOT_IN_KEY, Read, Stage, in_order, plain
from remanence.stages.store import Store

__all__ = [
    "IN_KEY_IF_GIVEN",
    "NOT_IN_KEY",
    "Failure",
    "Read",
    "Stage",
    "Store",
    "Tally",
    "Watcher",
    "compute_stages",
    "in_order",
    "plain",
    "run_stages",
]
