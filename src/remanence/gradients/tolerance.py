"""How far two exact computations of one thing may lie apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tolerance:
    """How far two computations of one squared norm may lie apart: a rule that is wrong is off by far more.

    Args:
        relative: of the value itself.
        share: of the example's total, since a parameter without influence has a gradient of rounding errors.
        floor: of the batch's largest, since a fitted example's gradient is one of rounding errors.
        company: of an example's outputs and gradient in a batch and alone.
    """

    relative: float
    share: float
    floor: float
    company: float

    @staticmethod
    def of(dtype: torch.dtype) -> Tolerance:
        """Wide for half precision, tight for double."""
        if dtype == torch.float64:
            return Tolerance(1e-7, 1e-10, 1e-14, 1e-6)
        if dtype == torch.float32:
            return Tolerance(3e-3, 1e-5, 1e-8, 0.03)
        return Tolerance(0.1, 0.02, 1e-4, 0.3)
