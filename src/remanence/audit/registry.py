"""Every metric by its name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from remanence.audit import accuracy, harm, membership, relearning
from remanence.audit.bavaria import bavaria
from remanence.audit.canary_bound import one_run_epsilon
from remanence.audit.gus import QUANTILE_99, gus, gus_printed, gus_printed_quantile, gus_quantile, gus_z
from remanence.audit.klom import klom, klom_null
from remanence.audit.metric import Metric
from remanence.audit.relative_mmd import mmd_p, relative_mmd
from remanence.audit.rmia import rmia
from remanence.audit.swap import swap
from remanence.audit.u_lira import u_lira, u_lira_accuracy, u_lira_accuracy_sd, u_lira_null
from remanence.errors import UnknownNameError

_FEWEST_FOR_U_LIRA = 6
"""With fewer, the shadows of one kind that remain to judge another are no distribution."""
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
                of_classes=signal == "entropy",
            ),
            Metric(
                f"{name}_accuracy",
                f"balanced accuracy of that attacker on retain against test examples, by {description}",
                "oracle",
                "that of any model trained on as many examples; 0.5 is chance",
                partial(membership.membership_accuracy, signal=signal),
                of_classes=signal == "entropy",
            ),
        ]
    return metrics


def _relearning() -> list[Metric]:
    same = "that of an oracle after the same fine-tuning"
    return [
        Metric(
            "relearn_retain",
            "accuracy on the forget set after fine-tuning on retained data only",
            "oracle",
            same,
            relearning.relearn_retain,
            "relearning",
        ),
        Metric(
            "relearn_retain_log_odds",
            "mean log-odds of the true class on the forget set after fine-tuning on retained data only",
            "oracle",
            same,
            relearning.relearn_retain_log_odds,
            "relearning",
            0.5,
        ),
        Metric(
            "relearn_speed",
            "mean accuracy on the forget set over the first steps of fine-tuning on it",
            "oracle",
            same,
            relearning.relearn_speed,
            "relearning",
        ),
        Metric(
            "relearn_speed_log_odds",
            "mean log-odds of the true class on the forget set over the first steps of fine-tuning on it",
            "oracle",
            same,
            relearning.relearn_speed_log_odds,
            "relearning",
            0.5,
        ),
    ]


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
            "mia_auc",
            "probability that a forget example has larger log-odds than a test example",
            "oracle",
            "about 0.5 for examples as hard as the test set's, less for harder ones",
            membership.membership_auc,
        ),
        Metric(
            "log_odds",
            "mean log-odds of the true class, or the task's own signal, on the forget set, minus that on the test set",
            "oracle",
            "about 0 for examples as hard as the test set's, less for harder ones",
            membership.relative_log_odds,
            tolerance=0.5,
        ),
        Metric(
            "forget_log_odds",
            "mean log-odds of the true class on the forget set",
            "oracle",
            "that of any model that was not trained on it",
            membership.forget_log_odds,
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
            "that of models and oracles mixed at random; 0 for the same set of models",
            klom,
            "oracles",
            null=klom_null,
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
            fewest_shadows=_FEWEST_FOR_U_LIRA,
        ),
        Metric(
            "u_lira_accuracy",
            "balanced accuracy of that attack against the method, on its own shadow models",
            "lower",
            "0.5: chance",
            u_lira_accuracy,
            "shadows",
            null=u_lira_null,
            spread=u_lira_accuracy_sd,
            fewest_shadows=_FEWEST_FOR_U_LIRA,
        ),
        Metric(
            "bavaria",
            "share of the forget set that a likelihood-ratio attack for few unlearned shadows calls trained on",
            "oracle",
            "the attack's share of false alarms",
            bavaria,
            "shadows",
        ),
        Metric(
            "swap",
            "advantage of an attacker who separates unlearned from unseen examples in swapped pairs of shadows",
            "lower",
            "0: retraining treats both alike",
            swap,
            "shadows",
            reference=0.0,
        ),
        Metric(
            "rmia",
            "share of the forget set recognized as trained on, with 5% false alarms, by a ratio to the oracles",
            "oracle",
            "that of an oracle against the others; 0.05 for examples as hard as the test set's, more for harder ones",
            rmia,
            "oracles",
        ),
        Metric(
            "relative_mmd",
            "distance of the outputs on the forget set from the oracles', in distances of oracles from each other",
            "oracle",
            "about 1",
            relative_mmd,
            "oracles",
            1.0,
            1.0,
        ),
        Metric(
            "mmd_p",
            "p-value of the hypothesis that the model is one more oracle, by the outputs on the forget set",
            "higher",
            "uniform on (0, 1): below 0.05 in 5 of 100 cases",
            mmd_p,
            "oracles",
            0.95,
            1.0,
        ),
        Metric(
            "harm",
            "mean change of the loss of the examples that stay, since before unlearning",
            "oracle",
            "what retraining costs them",
            harm.harm,
            "the original model",
            0.1,
        ),
        Metric(
            "harm_worst_class",
            "the same in the class where it is largest",
            "oracle",
            "the worst class of retraining",
            harm.harm_worst_class,
            "the original model",
            0.1,
        ),
        Metric(
            "harm_worst_person",
            "the same for the person for whom it is largest",
            "oracle",
            "the worst person of retraining",
            harm.harm_worst_person,
            "people",
            0.1,
        ),
        *_relearning(),
        Metric(
            "one_run_epsilon",
            "lower bound on ε of training, with 95% confidence, from canaries that coins included",
            "lower",
            "0: what was never trained on proves nothing",
            one_run_epsilon,
            "canaries",
        ),
    )
}


def metrics_named(names: Sequence[str]) -> list[Metric]:
    """The metrics of these names; an unknown name raises an error that suggests the nearest."""
    for name in names:
        if name not in METRICS:
            raise UnknownNameError("metric", name, METRICS)
    return [METRICS[name] for name in names]
