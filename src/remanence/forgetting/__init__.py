"""Who goes: forget sets."""

from remanence.forgetting.selection import BAND_NAMES, bands, random_set

__all__ = ["BAND_NAMES", "bands", "random_set"]
