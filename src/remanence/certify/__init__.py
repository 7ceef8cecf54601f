"""The per-instance certificate for convex models: how many steps forget each example, provably, and an attack."""

from remanence.certify.certification import Certification, certify
from remanence.certify.problem import Problem, load_problem, reference_problem

__all__ = ["Certification", "Problem", "certify", "load_problem", "reference_problem"]
