"""Unlearning methods, one file per method."""

from remanence.unlearning.deletion_by_localization import Del
from remanence.unlearning.finetune import Finetune
from remanence.unlearning.fold_targets import FoldTargets, has_fold_targets, outputs_on, read_fold_targets
from remanence.unlearning.gradient_ascent import GradientAscent
from remanence.unlearning.l1_sparse import L1Sparse
from remanence.unlearning.method import Method
from remanence.unlearning.msg import Msg
from remanence.unlearning.neggrad_plus import NegGradPlus
from remanence.unlearning.noisy_finetune import NoisyFinetune
from remanence.unlearning.out_of_fold import OutOfFold
from remanence.unlearning.random_label import RandomLabel
from remanence.unlearning.registry import METHODS, full_names, make_method, method_named, option_names
from remanence.unlearning.reset import Reset
from remanence.unlearning.retrain import Retrain
from remanence.unlearning.routed import Routed
from remanence.unlearning.salun import SalUn
from remanence.unlearning.scrub import Scrub
from remanence.unlearning.shrink_perturb import ShrinkPerturb
from remanence.unlearning.units import has_units

__all__ = [
    "METHODS",
    "Del",
    "Finetune",
    "FoldTargets",
    "GradientAscent",
    "L1Sparse",
    "Method",
    "Msg",
    "NegGradPlus",
    "NoisyFinetune",
    "OutOfFold",
    "RandomLabel",
    "Reset",
    "Retrain",
    "Routed",
    "SalUn",
    "Scrub",
    "ShrinkPerturb",
    "full_names",
    "has_fold_targets",
    "has_units",
    "make_method",
    "method_named",
    "option_names",
    "outputs_on",
    "read_fold_targets",
]
