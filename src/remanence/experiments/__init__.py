"""Experiments: unlearn and measure, oracles, tuning, shadow models, times to unlearn."""

from remanence.experiments.choice import MARGIN, Tried, TunedChoice, read_choice, tuned_method
from remanence.experiments.durations import (
    STAY,
    TOLERANCE,
    Duration,
    DurationSummary,
    duration_interval,
    half_gap_time,
    kaplan_meier,
    settled_time,
    summarize,
    time_to_unlearn,
)
from remanence.experiments.measuring import curve, measure, read_curve, read_measurements
from remanence.experiments.oracles import cached_oracle, oracle_seed, oracle_settings, train_without
from remanence.experiments.relearning import Relearning, announced, relearning_cost
from remanence.experiments.schedule import affordable_steps, every_steps, half_of, sampled, thinning_steps
from remanence.experiments.shadow_training import train_shadows
from remanence.experiments.tuning import TuneSettings, Tuning, read_tuning, tune
from remanence.experiments.unlearn import DEFAULT_METRICS, UnlearnSettings, unlearn_run
from remanence.experiments.unlearning_loop import Evaluations, Trajectory, unlearn_and_measure

__all__ = [
    "DEFAULT_METRICS",
    "MARGIN",
    "STAY",
    "TOLERANCE",
    "Duration",
    "DurationSummary",
    "Evaluations",
    "Relearning",
    "Trajectory",
    "Tried",
    "TuneSettings",
    "TunedChoice",
    "Tuning",
    "UnlearnSettings",
    "affordable_steps",
    "announced",
    "cached_oracle",
    "curve",
    "duration_interval",
    "every_steps",
    "half_gap_time",
    "half_of",
    "kaplan_meier",
    "measure",
    "oracle_seed",
    "oracle_settings",
    "read_choice",
    "read_curve",
    "read_measurements",
    "read_tuning",
    "relearning_cost",
    "sampled",
    "settled_time",
    "summarize",
    "thinning_steps",
    "time_to_unlearn",
    "train_shadows",
    "train_without",
    "tune",
    "tuned_method",
    "unlearn_and_measure",
    "unlearn_run",
]
