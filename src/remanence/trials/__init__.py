"""Run a method and measure as it goes: time to unlearn, tuning."""

from remanence.trials.learning_rate import LearningRateTrial, choose_learning_rate
from remanence.trials.stopping import Duration, DurationSummary, summarize, time_to_unlearn
from remanence.trials.trial import measure, run_trial

__all__ = [
    "Duration",
    "DurationSummary",
    "LearningRateTrial",
    "choose_learning_rate",
    "measure",
    "run_trial",
    "summarize",
    "time_to_unlearn",
]
