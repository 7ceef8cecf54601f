"""One training loop, and what it records."""

from remanence.training.loop import Recipe, train_steps
from remanence.training.recorder import Recorder, even_steps

__all__ = ["Recipe", "Recorder", "even_steps", "train_steps"]
