"""Unlearning methods, one short file each."""
