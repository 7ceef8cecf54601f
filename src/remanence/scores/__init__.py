"""Scores of how hard each example is to forget: the privacy loss and its proxies, functions from trace to `Scores`."""

from remanence.scores.files import read_scores, scores_from, write_scores
from remanence.scores.proxies import (
    confidence,
    error_norm,
    gradient_norm_end,
    gradient_norm_mean,
    gradient_norm_middle,
)
from remanence.scores.registry import PROXIES, SCORES
from remanence.scores.table import ScoreTable, available_scores, score_table
from remanence.theory.privacy_loss import privacy_loss

__all__ = [
    "PROXIES",
    "SCORES",
    "ScoreTable",
    "available_scores",
    "confidence",
    "error_norm",
    "gradient_norm_end",
    "gradient_norm_mean",
    "gradient_norm_middle",
    "privacy_loss",
    "read_scores",
    "score_table",
    "scores_from",
    "write_scores",
]
