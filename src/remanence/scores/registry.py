"""All scores by name."""

from __future__ import annotations

from collections.abc import Callable

from remanence.scores.proxies import (
    confidence,
    error_norm,
    gradient_norm_end,
    gradient_norm_mean,
    gradient_norm_middle,
)
from remanence.theory.privacy_loss import privacy_loss
from remanence.types import Scores

SCORES: dict[str, Callable[..., Scores]] = {
    "privacy_loss": privacy_loss,
    "gradient_norm_middle": gradient_norm_middle,
    "gradient_norm_end": gradient_norm_end,
    "gradient_norm_mean": gradient_norm_mean,
    "confidence": confidence,
    "error_norm": error_norm,
}

PROXIES = tuple(name for name in SCORES if name != "privacy_loss")
