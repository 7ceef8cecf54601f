"""Networks small enough to read."""
