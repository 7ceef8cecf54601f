"""Plots and notebook cards of results, from plain numbers; independent of the package's types."""
