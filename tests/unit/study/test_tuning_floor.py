"""The learning rate of unlearning is chosen among those that leave the retain accuracy above a floor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remanence.stages import Stage, in_order
from remanence.storage import Folder, create, open_folder
from remanence.study.catalog import load_study
from remanence.study.running import plan
from remanence.study.unlearn_stages import Measure, Tune, Unlearn

CHANGES = ["tune.learning_rates=[0.1, 0.2, 0.4]", 'tune.metrics=["ua", "ra"]', "tune.seeds=2"]
UA = {0.1: (0.0, 0.1, 0.1), 0.2: (0.0, 0.3, 0.4), 0.4: (0.0, 0.5, 0.5)}
RA = {0.1: (1.0, 0.99, 1.0), 0.2: (1.0, 0.7, 0.96), 0.4: (1.0, 0.9, 0.9)}
ORACLE = {"ua": 0.5, "ra": 1.0}


def row(metric: str, step: int, value: float) -> dict[str, Any]:
    return {"metric": metric, "subset": "forget", "step": step, "value": value, "seed": 0}


def artifact(place: Path, stage: Stage, diverged: float) -> Folder:
    with create(place, stage.kind) as draft:
        if isinstance(stage, Measure):
            draft.rows("measurements", [row(name, 0, value) for name, value in ORACLE.items()])
        elif isinstance(stage, Unlearn):
            rate = stage.learning_rate
            assert rate is not None
            curves: Mapping[str, tuple[float, ...]] = {"ua": UA[rate], "ra": RA[rate]}
            draft.rows(
                "measurements",
                [
                    row(name, step, value)
                    for name, values in curves.items()
                    for step, value in enumerate(values)
                ],
            )
            draft.document("unlearning", {"diverged": "it diverged" if rate == diverged else None})
    return open_folder(place, stage.kind)


def choice(folder: Path, floor: float, diverged: float = 0.0) -> dict[str, Any]:
    planned = plan(load_study("svhn", "smoke", [*CHANGES, f"tune.floor={floor}"]))
    [tune] = [stage for stage in in_order([planned.goal]) if isinstance(stage, Tune)]
    folders = {
        stage.key: artifact(folder / stage.key, stage, diverged) for stage in (*tune.oracles, *tune.attempts)
    }
    with create(folder / "tune", "tune") as draft:
        tune.compute(draft, lambda stage: folders[stage.key])
    return open_folder(folder / "tune", "tune").document("choice")


@pytest.mark.parametrize(
    ("floor", "rate", "met"),
    [(0.0, 0.4, True), (0.9, 0.4, True), (0.95, 0.2, True), (0.99, 0.1, True)],
)
def test_the_floor_leaves_out_rates_that_end_below_it(
    floor: float, rate: float, met: bool, tmp_path: Path
) -> None:
    document = choice(tmp_path, floor)
    assert (document["learning_rate"], document["floor_met"], document["floor"]) == (rate, met, floor)
    assert document["retain_accuracy"]["0.2"] == {"end": pytest.approx(0.96), "lowest": pytest.approx(0.7)}


def test_if_no_rate_meets_the_floor_the_highest_end_is_taken(tmp_path: Path) -> None:
    document = choice(tmp_path, 1.0, diverged=0.1)
    assert (document["learning_rate"], document["floor_met"]) == (0.2, False)
    assert document["retain_accuracy"]["0.1"] == {"end": 0.0, "lowest": 0.0}
