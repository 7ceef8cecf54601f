"""Unlearning methods, one file per method."""

from remanence.unlearning.finetune import Finetune
from remanence.unlearning.gradient_ascent import GradientAscent
from remanence.unlearning.l1_sparse import L1Sparse
from remanence.unlearning.method import Method
from remanence.unlearning.neggrad_plus import NegGradPlus
from remanence.unlearning.noisy_finetune import NoisyFinetune
from remanence.unlearning.random_label import RandomLabel
from remanence.unlearning.registry import METHODS, full_names, make_method, method_named, option_names
from remanence.unlearning.retrain import Retrain
from remanence.unlearning.salun import SalUn
from remanence.unlearning.scrub import Scrub

__all__ = [
    "METHODS",
    "Finetune",
    "GradientAscent",
    "L1Sparse",
    "Method",
    "NegGradPlus",
    "NoisyFinetune",
    "RandomLabel",
    "Retrain",
    "SalUn",
    "Scrub",
    "full_names",
    "make_method",
    "method_named",
    "option_names",
]
