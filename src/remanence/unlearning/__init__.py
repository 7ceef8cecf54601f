"""Unlearning methods, one short file each. A factory takes hyperparameters and returns a `Method`."""

from remanence.unlearning.contract import Method
from remanence.unlearning.finetune import finetune

METHODS = {"finetune": finetune}

__all__ = ["METHODS", "Method", "finetune"]
