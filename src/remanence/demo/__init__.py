"""The whole story on scikit-learn's digits."""

from remanence.demo.run import Outcome, run_demo
from remanence.demo.settings import DemoSettings

__all__ = ["DemoSettings", "Outcome", "run_demo"]
