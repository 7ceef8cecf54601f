"""Run a method and measure as it goes: time to unlearn, tuning."""

from remanence.trials.choice import Choice, Tried, read_choice
from remanence.trials.learning_rate import LearningRateTrial, choose_learning_rate
from remanence.trials.oracles import cached_oracle, oracle_settings
from remanence.trials.schedule import affordable_steps, every_steps, sampled
from remanence.trials.stopping import DurationSummary, duration_interval, summarize, time_to_unlearn
from remanence.trials.survival import Duration, Survival, kaplan_meier
from remanence.trials.trial import measure, run_trial
from remanence.trials.tuning import TuneSettings, Tuning, read_tuning, tune
from remanence.trials.unlearned import DEFAULT_METRICS, UnlearnSettings, unlearn_run

__all__ = [
    "DEFAULT_METRICS",
    "Choice",
    "Duration",
    "DurationSummary",
    "LearningRateTrial",
    "Survival",
    "Tried",
    "TuneSettings",
    "Tuning",
    "UnlearnSettings",
    "affordable_steps",
    "cached_oracle",
    "choose_learning_rate",
    "duration_interval",
    "every_steps",
    "kaplan_meier",
    "measure",
    "oracle_settings",
    "read_choice",
    "read_tuning",
    "run_trial",
    "sampled",
    "summarize",
    "time_to_unlearn",
    "tune",
    "unlearn_run",
]
