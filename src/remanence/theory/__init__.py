"""The theory: numpy and scipy, float64, log space, no torch."""

from remanence.theory.convergence import epsilon_after, steps_to_unlearn
from remanence.theory.group import group_loss
from remanence.theory.langevin import Langevin
from remanence.theory.privacy_loss import privacy_loss, privacy_losses, worst_case_loss
from remanence.theory.sampled_gaussian import log_moment

__all__ = [
    "Langevin",
    "epsilon_after",
    "group_loss",
    "log_moment",
    "privacy_loss",
    "privacy_losses",
    "steps_to_unlearn",
    "worst_case_loss",
]
