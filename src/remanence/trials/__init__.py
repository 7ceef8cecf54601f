"""Run a method and measure as it goes: time to unlearn, tuning."""

from remanence.trials.stopping import Duration, DurationSummary, summarize, time_to_unlearn
from remanence.trials.trial import measure, run_trial

__all__ = ["Duration", "DurationSummary", "measure", "run_trial", "summarize", "time_to_unlearn"]
