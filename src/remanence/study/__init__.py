"""Stages, their artifacts, and the processes that compute them."""

from remanence.study.executor import Tally, run_stages
from remanence.study.stages import Stage, StageKind, in_order
from remanence.study.store import Store

__all__ = ["Stage", "StageKind", "Store", "Tally", "in_order", "run_stages"]
