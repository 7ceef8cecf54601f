"""Forecast the steps to unlearn: the law of the theory fitted on calibration runs, with an interval."""

from remanence.forecast.conformal import LeaveOneOut, guaranteed_coverage, jackknife_interval
from remanence.forecast.difficulty import NOTHING, CalibrationRun, Difficulty, difficulty_of
from remanence.forecast.expectation import Expectation, SignalExpectation
from remanence.forecast.forecaster import ENOUGH, Forecast, Forecaster
from remanence.forecast.law import UnlearningLaw, fit_law
from remanence.forecast.predictors import Comparison, compare
from remanence.forecast.reference_pool import STOPPING, ReferencePool

__all__ = [
    "ENOUGH",
    "NOTHING",
    "STOPPING",
    "CalibrationRun",
    "Comparison",
    "Difficulty",
    "Expectation",
    "Forecast",
    "Forecaster",
    "LeaveOneOut",
    "ReferencePool",
    "SignalExpectation",
    "UnlearningLaw",
    "compare",
    "difficulty_of",
    "fit_law",
    "guaranteed_coverage",
    "jackknife_interval",
]
