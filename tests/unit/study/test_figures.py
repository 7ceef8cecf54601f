"""Figures made from artifacts, without the hours that computing them takes."""

from pathlib import Path
from typing import Any

import pytest

from remanence.storage import Folder, create, open_folder
from remanence.study.catalog import load_study
from remanence.study.figures import FIGURES
from remanence.study.results import Parts, Result
from remanence.study.running import plan

BANDS = ("easiest", "lower quartile", "median", "upper quartile", "hardest")


def artifact(place: Path, role: dict[str, Any]) -> Folder:
    """An artifact as a stage would leave it: harder sets, and `l1_sparse`, take longer."""
    band = BANDS.index(role["set"])
    with create(place, "made-up") as draft:
        if role["role"] == "forget":
            draft.document("forget_set", {"mean_privacy_loss": 10.0**band})
        elif role["role"] == "oracle":
            draft.rows("measurements", [{"metric": name, "step": 0, "value": 0.5} for name in ("ua", "mia")])
        else:
            there = band + (2 if role["method"] == "l1_sparse" else 0) + role["seed"]
            rows = [
                {"metric": name, "step": step, "value": 0.5 * (step >= there)}
                for name in ("ua", "mia")
                for step in range(10)
            ]
            draft.rows("measurements", rows)
            draft.document("unlearning", {"steps_per_epoch": 1, "diverged": None})
    return open_folder(place, "made-up")


def made(name: str, changes: list[str], folder: Path) -> Result:
    planned = plan(load_study(name, "smoke", changes))
    params = planned.goal.params
    folders = [artifact(folder / str(i), role) for i, role in enumerate(params["roles"])]
    return FIGURES[planned.study.figure].make(Parts(params["roles"], folders), params)


@pytest.mark.parametrize(("name", "lines", "verdicts"), [("svhn", 4, 4), ("forget-set-sizes", 4, 6)])
def test_two_methods_make_two_lines(name: str, lines: int, verdicts: int, tmp_path: Path) -> None:
    result = made(name, ['unlearn.methods=["finetune", "l1_sparse"]'], tmp_path)
    series = [row[0] for row in result.tables["Epochs to unlearn"].rows]
    assert len(set(series)) == lines, "two methods, by two metrics or of two sizes"
    assert {series.count(each) for each in series} == {5}
    assert len(result.verdicts) == verdicts
    assert {each.agreement for each in result.verdicts[:4]} == {"agrees"}
    methods = {(row["method"], row["epochs"]) for row in result.measurements if row["set"] == "easiest"}
    assert methods == {("finetune", 0.0), ("finetune", 1.0), ("l1_sparse", 2.0), ("l1_sparse", 3.0)}
