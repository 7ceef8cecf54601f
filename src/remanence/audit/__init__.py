"""Metrics that tell whether it worked, one short file each."""
