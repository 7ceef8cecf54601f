"""Data sets whose examples have stable ids."""

from remanence.data.digits import digits
from remanence.data.examples import Examples, Split

DATASETS = {"digits": digits}

__all__ = ["DATASETS", "Examples", "Split", "digits"]
