"""Did it work? Metrics that read one shared `Evaluation`, one short file each, and loss barriers."""

from remanence.audit.barrier import Barrier, loss_barrier, loss_barriers
from remanence.audit.context import Context
from remanence.audit.evaluation import Evaluation, Outputs, evaluate
from remanence.audit.metric import Metric
from remanence.audit.registry import METRICS, metrics_named
from remanence.audit.shadow_table import ShadowTable

__all__ = [
    "METRICS",
    "Barrier",
    "Context",
    "Evaluation",
    "Metric",
    "Outputs",
    "ShadowTable",
    "evaluate",
    "loss_barrier",
    "loss_barriers",
    "metrics_named",
]
