"""Metrics of unlearning, which all read one `Evaluation`; audits of runs; loss barriers."""

from remanence.audit.auditing import Audit, audit_runs
from remanence.audit.barrier import Barrier, loss_barrier, loss_barriers
from remanence.audit.context import Context, ShadowTable
from remanence.audit.evaluation import Evaluation, Outputs, evaluate
from remanence.audit.metric import Metric
from remanence.audit.registry import METRICS, metrics_named

__all__ = [
    "METRICS",
    "Audit",
    "Barrier",
    "Context",
    "Evaluation",
    "Metric",
    "Outputs",
    "ShadowTable",
    "audit_runs",
    "evaluate",
    "loss_barrier",
    "loss_barriers",
    "metrics_named",
]
