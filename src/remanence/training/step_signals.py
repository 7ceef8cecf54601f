"""What the training steps of one period (an epoch, for example) show of each example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remanence.training.example_statistics import STATISTICS, Row
from remanence.types import Ids


class StepSignals:
    """The row of a trace that the steps of a period fill: NaN where an example was not seen, or not measured."""

    def __init__(self, ids: Ids) -> None:
        self._n = len(ids)
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]
        self.seen = False
        self._clear()

    def positions(self, ids: Sequence[Any] | Ids | Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of a batch whose ids are recorded, and their columns."""
        batch_ids = ids.cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
        places = np.minimum(np.searchsorted(self._sorted, batch_ids), self._n - 1)
        rows = np.flatnonzero(self._sorted[places] == batch_ids)
        return rows, self._order[places[rows]]

    def _clear(self) -> None:
        self._row: Row = {name: np.full(self._n, np.nan, np.float32) for name in STATISTICS}
        self._row["moments"] = np.full(self._n, -1, np.int64)

    def add(
        self,
        columns: NDArray[np.int64],
        step: int,
        confidence: Tensor,
        error: Tensor,
        norms: Tensor | None,
    ) -> None:
        """Keep what a step shows of its examples; an example that was measured keeps that measurement."""
        self.seen = True
        values = torch.stack([confidence.float(), error.float()]).cpu().numpy()
        if norms is None:
            unmeasured = np.isnan(self._row["norms"][columns])
            columns, values = columns[unmeasured], values[:, unmeasured]
        else:
            self._row["norms"][columns] = norms.float().cpu().numpy()
        self._row["confidence"][columns], self._row["error"][columns] = values
        self._row["moments"][columns] = step

    def mean_square_error(self) -> float | None:
        """Mean squared error norm of the examples seen in this period; None if there were none."""
        errors = self._row["error"][self._row["moments"] >= 0]
        return float(np.mean(errors.astype(np.float64) ** 2)) if len(errors) else None

    def take_row(self) -> Row:
        """The row of the period; the next one begins."""
        row = self._row
        self._clear()
        return row
