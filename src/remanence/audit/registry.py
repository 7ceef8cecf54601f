"""Every metric by its name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from remanence.audit import accuracy, membership
from remanence.audit.gus import QUANTILE_99, gus, gus_printed, gus_printed_quantile, gus_quantile, gus_z
from remanence.audit.klom import klom
from remanence.audit.metric import Metric
from remanence.audit.u_lira import u_lira, u_lira_accuracy
from remanence.errors import UnknownNameError

_AS_OUTSIDERS = "about the share of test examples that the same attacker calls non-member"


def _attacks() -> list[Metric]:
    metrics = []
    for name, (signal, description) in membership.SIGNALS.items():
        metrics += [
            Metric(
                name,
                f"share of the forget set that an attacker who reads {description} calls never trained on",
                "oracle",
                _AS_OUTSIDERS,
                partial(membership.membership, signal=signal),
            ),
            Metric(
                f"{name}_accuracy",
                f"balanced accuracy of that attacker on retain against test examples, by {description}",
                "oracle",
                "that of any model trained on as many examples; 0.5 is chance",
                partial(membership.membership_accuracy, signal=signal),
            ),
        ]
    return metrics


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "ua",
            "share of the forget set that the model gets wrong",
            "oracle",
            "about one minus the test accuracy, more for hard examples",
            accuracy.unlearning_accuracy,
        ),
        Metric(
            "ra",
            "accuracy on the training examples that stay",
            "oracle",
            "that of any model trained on them",
            accuracy.retain_accuracy,
        ),
        Metric(
            "test",
            "accuracy on data that no model was trained on",
            "oracle",
            "that of any model trained on the retain set",
            accuracy.test_accuracy,
        ),
        *_attacks(),
        Metric(
            "log_odds",
            "mean log-odds of the true class on the forget set, minus that on the test set",
            "oracle",
            "about 0 for examples as hard as the test set's, less for harder ones",
            membership.relative_log_odds,
            tolerance=0.5,
        ),
        Metric(
            "gus",
            "mean alignment of the input gradient with the noise that the forget set was trained with",
            "oracle",
            "0, give or take 1/√m",
            gus,
            "poison",
            gus_quantile,
            0.0,
        ),
        Metric(
            "gus_z",
            "√m times gus, for m poisoned examples",
            "oracle",
            "within ±2.58 in 99 of 100 cases",
            gus_z,
            "poison",
            QUANTILE_99,
            0.0,
        ),
        Metric(
            "gus_printed",
            "gus as the paper prints it, without the division by σ",
            "oracle",
            "0, give or take σ/√m",
            gus_printed,
            "poison",
            gus_printed_quantile,
            0.0,
        ),
        Metric(
            "klom",
            "KL divergence of the margins' distribution on the forget set, oracles against models",
            "oracle",
            "that of an oracle against the others; 0 for the same set of models",
            klom,
            "oracles",
            0.5,
        ),
        Metric(
            "disagreement",
            "share of the forget set on which the answer is not the oracle's",
            "oracle",
            "how often oracles disagree with each other",
            accuracy.disagreement,
            "oracles",
        ),
        Metric(
            "u_lira",
            "share of the forget set that a likelihood-ratio attack with unlearned shadows calls trained on",
            "oracle",
            "the attack's share of false alarms",
            u_lira,
            "shadows",
        ),
        Metric(
            "u_lira_accuracy",
            "balanced accuracy of that attack against the method, on its own shadow models",
            "lower",
            "0.5: chance",
            u_lira_accuracy,
            "shadows",
            reference=0.5,
        ),
    )
}


def metrics_named(names: Sequence[str]) -> list[Metric]:
    """The metrics of these names; an unknown name raises an error that suggests the nearest."""
    for name in names:
        if name not in METRICS:
            raise UnknownNameError("metric", name, METRICS)
    return [METRICS[name] for name in names]
