"""Who goes: forget sets."""
