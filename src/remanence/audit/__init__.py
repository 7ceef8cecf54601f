"""Metrics that tell whether it worked, one short file each; all read one shared `Evaluation`."""

from collections.abc import Callable

from remanence.audit.accuracy import retain_accuracy, test_accuracy, unlearning_accuracy
from remanence.audit.evaluation import Evaluation, Outputs, evaluate
from remanence.audit.membership import membership

Metric = Callable[[Evaluation], float]

METRICS: dict[str, Metric] = {
    "ua": unlearning_accuracy,
    "ra": retain_accuracy,
    "test": test_accuracy,
    "mia": membership,
}

__all__ = ["METRICS", "Evaluation", "Metric", "Outputs", "evaluate"]
