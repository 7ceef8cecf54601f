"""Permutations of hidden units: found by tracing a model, matched between two models."""

from remanence.audit.permutations.matching import check_same_shapes, match_permutations
from remanence.audit.permutations.symmetry import Permutations, Symmetry, permuted
from remanence.audit.permutations.tracing import trace_symmetry

__all__ = [
    "Permutations",
    "Symmetry",
    "check_same_shapes",
    "match_permutations",
    "permuted",
    "trace_symmetry",
]
