"""Networks small enough to read."""

from remanence.models.small_conv import small_conv

MODELS = {"small_conv": small_conv}

__all__ = ["MODELS", "small_conv"]
