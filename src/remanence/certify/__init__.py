"""The per-instance certificate for convex models: certified unlearning steps of each example, tested by an attack."""

from remanence.certify.certification import Certification, certify
from remanence.certify.problem import Problem, load_problem, reference_problem

__all__ = ["Certification", "Problem", "certify", "load_problem", "reference_problem"]
