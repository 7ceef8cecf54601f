"""The demo's stages, wired up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from remanence.data import digits
from remanence.demo.settings import DemoSettings
from remanence.demo.stages import ORACLE, SELECT, TRAIN, TRIAL, TUNE, UNLEARN
from remanence.forgetting import BAND_NAMES
from remanence.study import Stage

_TUNING_ORACLES = 1
"""One for each seed's random forget set: the learning rate is chosen on their average."""


@dataclass(frozen=True)
class SeedStages:
    """The stages of one repetition."""

    train: Stage
    select: Stage
    oracles: dict[str, list[Stage]]
    unlearn: dict[str, Stage]


@dataclass(frozen=True)
class DemoGraph:
    """All stages of the demo; `seeds` in order."""

    seeds: list[SeedStages]
    tune: Stage

    def goals(self) -> list[Stage]:
        """The stages whose artifacts the results are read from."""
        ends: list[Stage] = []
        for seed in self.seeds:
            ends += [*(oracle for each in seed.oracles.values() for oracle in each), *seed.unlearn.values()]
        return ends


def build_graph(settings: DemoSettings) -> DemoGraph:
    """Everything that has to be done, with what each piece depends on."""
    data = digits()[0].digest()
    trunks = [_trunk(settings, seed, data) for seed in range(settings.seeds)]
    tune = _tune(settings, trunks)
    recipe = asdict(settings.unlearning(settings.learning_rates[0])) | {"learning_rate": None}
    for seed, trunk in enumerate(trunks):
        for name in BAND_NAMES:
            params = {"forget": name, "seed": seed, "recipe": recipe, "width": settings.width}
            needs = (trunk.train, trunk.select, tune)
            trunk.unlearn[name] = Stage(UNLEARN, params, needs, cost=settings.unlearning_epochs * 1.3)
    return DemoGraph(trunks, tune)


def _trunk(settings: DemoSettings, seed: int, data: str) -> SeedStages:
    common: dict[str, Any] = {"seed": seed, "width": settings.width, "recipe": asdict(settings.training)}
    training = common | {"checkpoints": settings.checkpoints, "sigma": settings.sigma, "data": data}
    train = Stage(TRAIN, training, cost=settings.training.epochs + settings.checkpoints)
    choice = {"alpha": settings.alpha, "sigma": settings.sigma, "size": settings.band_size, "seed": seed}
    select = Stage(SELECT, choice, (train,), cost=0.5)
    oracles = {
        name: [
            Stage(ORACLE, common | {"forget": name, "replicate": i}, (select,), cost=settings.training.epochs)
            for i in range(settings.oracles if name in BAND_NAMES else _TUNING_ORACLES)
        ]
        for name in (*BAND_NAMES, "random")
    }
    return SeedStages(train, select, oracles, {})


def _tune(settings: DemoSettings, trunks: list[SeedStages]) -> Stage:
    needs: list[Stage] = []
    for seed, trunk in enumerate(trunks):
        needs += trunk.oracles["random"]
        for rate in settings.learning_rates:
            recipe = asdict(settings.unlearning(rate, settings.tuning_epochs))
            params = {"forget": "random", "seed": seed, "recipe": recipe, "width": settings.width}
            cost = settings.tuning_epochs * 1.3
            needs.append(Stage(TRIAL, params, (trunk.train, trunk.select), cost=cost))
    params = {"learning_rates": list(settings.learning_rates), "oracles": _TUNING_ORACLES}
    return Stage(TUNE, params, tuple(needs), cost=0.1)
