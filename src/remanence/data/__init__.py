"""Data sets whose examples have stable ids."""
