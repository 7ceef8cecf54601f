"""The one standard deviation of all tables and figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def standard_deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
