"""What shadow models say of the examples in question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remanence.errors import InputError
from remanence.types import Ids, as_ids


@dataclass(frozen=True, eq=False)
class ShadowTable:
    """N shadow models, each unlearned by the method under test, on m examples.

    Args:
        ids: the examples.
        member: [N, m] whether the shadow was trained on the example before it unlearned it.
        signal: [N, m] log-odds of the true class, after unlearning.
    """

    ids: Ids
    member: NDArray[np.bool_]
    signal: NDArray[np.float64]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids))
        shape = (len(self.member), len(self.ids))
        if self.member.shape != shape or self.signal.shape != shape:
            raise InputError(
                f"`member` and `signal` must have a row a shadow and a column an example; "
                f"got {self.member.shape} and {self.signal.shape} for {len(self.ids)} examples."
            )
        inside = self.member.sum(axis=0)
        if (inside < 2).any() or (len(self.member) - inside < 2).any():
            raise InputError(
                "Every example needs two shadow models trained with it and two without, at least."
            )
