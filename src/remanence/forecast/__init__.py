"""Steps to unlearn, known beforehand: the theory's law fitted on calibration runs, with an honest interval."""

from remanence.forecast.calibration import CalibrationRun, Difficulty, difficulty_of
from remanence.forecast.conformal import LeftOut, jackknife_interval
from remanence.forecast.forecaster import ENOUGH, Forecast, Forecaster
from remanence.forecast.law import UnlearningLaw, fit_law
from remanence.forecast.predictors import PREDICTORS, Comparison, compare
from remanence.forecast.reference import Expectation, ReferencePool

__all__ = [
    "ENOUGH",
    "PREDICTORS",
    "CalibrationRun",
    "Comparison",
    "Difficulty",
    "Expectation",
    "Forecast",
    "Forecaster",
    "LeftOut",
    "ReferencePool",
    "UnlearningLaw",
    "compare",
    "difficulty_of",
    "fit_law",
    "jackknife_interval",
]
