"""Stages, their artifacts, and the processes that compute them."""
