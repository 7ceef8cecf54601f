"""Every unlearning method by its name."""

from __future__ import annotations

from remanence.errors import UnknownNameError
from remanence.unlearning.contract import Method
from remanence.unlearning.finetune import Finetune
from remanence.unlearning.gradient_ascent import GradientAscent
from remanence.unlearning.l1_sparse import L1Sparse
from remanence.unlearning.neggrad_plus import NegGradPlus
from remanence.unlearning.noisy_finetune import NoisyFinetune
from remanence.unlearning.random_label import RandomLabel
from remanence.unlearning.retrain import Retrain
from remanence.unlearning.salun import SalUn
from remanence.unlearning.scrub import Scrub

METHODS: dict[str, type[Method]] = {
    "retrain": Retrain,
    "finetune": Finetune,
    "noisy_finetune": NoisyFinetune,
    "l1_sparse": L1Sparse,
    "gradient_ascent": GradientAscent,
    "neggrad_plus": NegGradPlus,
    "random_label": RandomLabel,
    "scrub": Scrub,
    "salun": SalUn,
}
"""Every unlearning method by its name: a class whose docstring gives formula, options and source."""


def method_named(name: str) -> type[Method]:
    """The method of this name; an unknown one is refused with the nearest."""
    if name not in METHODS:
        raise UnknownNameError("unlearning method", name, METHODS)
    return METHODS[name]
