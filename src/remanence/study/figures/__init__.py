"""Every figure by its name: which stages it needs, and what it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remanence.study.figures import (
    barriers,
    curves,
    demo,
    group_loss,
    hardest,
    pictures,
    predictors,
    proxies,
    rankings,
    sizes,
    times,
)
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts, Result, Wanted


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure.

    Args:
        wanted: the stages it needs, each with the role it plays.
        make: the figure from their artifacts.
        version: raised when its meaning or its appearance changes.
    """

    wanted: Callable[[Graph], Wanted]
    make: Callable[[Parts, FigureSettings], Result]
    version: int = 1


FIGURES: dict[str, FigureKind] = {
    "demo": FigureKind(demo.wanted, demo.make, version=3),
    "times": FigureKind(times.wanted, times.make, version=6),
    "sizes": FigureKind(sizes.wanted, sizes.make, version=6),
    "curves": FigureKind(curves.wanted, curves.make, version=3),
    "hardest": FigureKind(hardest.wanted, hardest.make, version=4),
    "proxies": FigureKind(proxies.wanted, proxies.make, version=4),
    "rankings": FigureKind(rankings.wanted, rankings.make, version=4),
    "pictures": FigureKind(pictures.wanted, pictures.make, version=2),
    "barriers": FigureKind(barriers.wanted, barriers.make, version=3),
    "predictors": FigureKind(predictors.wanted, predictors.make),
    "group": FigureKind(group_loss.wanted, group_loss.make, version=3),
}
