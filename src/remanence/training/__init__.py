"""One training loop, and what it records."""
