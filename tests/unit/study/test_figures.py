"""Figures made from artifacts, without the hours that computing them takes."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from remanence.scores import PROXIES
from remanence.storage import Folder, create, open_folder
from remanence.study.catalog import load_study
from remanence.study.figures import FIGURES
from remanence.study.gate import TITLE, apply_gate
from remanence.study.results import Parts, Result
from remanence.study.running import plan

BANDS = ("easiest", "lower quartile", "median", "upper quartile", "hardest")


LENGTH = 14
UNLEARNED = 1
"""The seed of a base model that has not memorised its data."""


def row(metric: str, step: int, value: float) -> dict[str, Any]:
    return {"metric": metric, "subset": "forget", "step": step, "value": value, "seed": 0}


def artifact(place: Path, role: dict[str, Any], oracles: Sequence[float]) -> Folder:
    """An artifact as a stage would leave it: harder sets, and `l1_sparse`, take longer."""
    band = BANDS.index(role.get("set", "median"))
    with create(place, "made-up") as draft:
        if role["role"] == "forget":
            draft.document("forget_set", {"mean_privacy_loss": 10.0**band * (1 + role["scored_by"])})
        elif role["role"] == "score":
            losses = np.arange(1.0, 41.0)
            columns = dict.fromkeys(("privacy_loss", *PROXIES), losses)
            draft.tensors("scores", {"ids": np.arange(40), **columns})
            draft.document("status", {"status": "heuristic", "reasons": ["no noise"]})
        elif role["role"] == "base":
            accuracy = 0.98 if role["seed"] == UNLEARNED else 1.0
            draft.document(
                "base", {"train_accuracy": accuracy, "test_accuracy": 0.5, "attack": 0.8, "auc": 0.9}
            )
        elif role["role"] == "tuned":
            draft.document("choice", {"learning_rate": 0.1, "distance_to_oracle": {"0.1": 0.02}})
        elif role["role"] == "oracle":
            draft.rows(
                "measurements",
                [row(name, 0, oracles[role["scored_by"]]) for name in ("ua", "mia_confidence", "mia_auc")],
            )
        else:
            there = band + (2 if role["method"] == "l1_sparse" else 0) + role["seed"]
            names = ("ua", "mia_confidence", "mia_auc")
            values = [(name, step, 0.5 * (step >= there)) for name in names for step in range(LENGTH)]
            retain = [("ra", step, 0.7 if step == there else 0.95) for step in range(LENGTH)]
            draft.rows("measurements", [row(*value) for value in (*values, *retain)])
            draft.document("unlearning", {"steps_per_epoch": 1, "diverged": None, "learning_rate": 0.03})
    return open_folder(place, "made-up")


def made(name: str, changes: list[str], folder: Path, oracles: Sequence[float] = (0.5,) * 5) -> Result:
    planned = plan(load_study(name, "smoke", changes))
    goal = planned.goal
    folders = [artifact(folder / str(i), dict(role), oracles) for i, role in enumerate(goal.roles)]
    parts = Parts(goal.roles, folders)
    return apply_gate(FIGURES[planned.study.figure].make(parts, goal.settings), parts, goal.settings)


@pytest.mark.parametrize(("name", "lines", "verdicts"), [("svhn", 4, 4), ("forget-set-sizes", 4, 6)])
def test_two_methods_make_two_lines(name: str, lines: int, verdicts: int, tmp_path: Path) -> None:
    result = made(name, ["seeds=5", 'unlearn.methods=["finetune", "l1_sparse"]'], tmp_path)
    series = [row[0] for row in result.tables["Epochs to unlearn"].rows]
    assert len(set(series)) == lines, "two methods, by two metrics or of two sizes"
    assert {series.count(name) for name in series} == {5}
    assert len(result.verdicts) == verdicts
    assert {verdict.agreement for verdict in result.verdicts[:4]} == {"agrees"}
    methods = {(row["method"], row["epochs"]) for row in result.measurements if row["set"] == "easiest"}
    longer = {"finetune": 0.0, "l1_sparse": 2.0}
    assert methods == {(method, start + seed) for method, start in longer.items() for seed in range(5)}


def test_reference_methods_are_shown_and_the_claim_is_not_about_them(tmp_path: Path) -> None:
    changes = ["seeds=5", 'unlearn.methods=["finetune", "scrub"]', 'unlearn.references=["scrub"]']
    result = made("svhn", changes, tmp_path)
    assert len({row[0] for row in result.tables["Epochs to unlearn"].rows}) == 4
    assert len(result.verdicts) == 2
    assert not any("scrub" in verdict.claim for verdict in result.verdicts)


def test_the_demo_sums_up_every_band_over_seeds(tmp_path: Path) -> None:
    result = made("demo", ["seeds=3"], tmp_path)
    numbers = result.numbers
    assert [band["name"] for band in numbers["bands"]] == list(BANDS)
    for place, band in enumerate(numbers["bands"]):
        assert band["mean_privacy_loss"] == pytest.approx(2 * 10.0**place), "each seed has sets of its own"
        assert band["sd_privacy_loss"] == pytest.approx(10.0**place)
        times = band["epochs_to_unlearn"]["mia_confidence"]
        assert times["by_seed"] == [{"epochs": place + seed, "reached": True} for seed in range(3)]
        assert (times["mean"], times["sd"], times["reached"], times["seeds"]) == (place + 1, 1.0, 3, 3)
        assert times["limit"] == LENGTH - 1
        half = t.ppf(0.975, 2) / 3**0.5
        assert times["interval"] == pytest.approx((max(0.0, place + 1 - half), place + 1 + half))
        assert band["oracle"]["ua"] == {"mean": 0.5, "sd": 0.0}
        assert [len(line) for line in band["curves"]["mia_confidence"]] == [LENGTH] * 3
    assert numbers["spearman"] == {"mia_confidence": 1.0, "ua": 1.0}
    assert numbers["tuning"] == {"finetune": {"learning_rate": 0.1, "distance_to_oracle": {"0.1": 0.02}}}
    assert (numbers["status"], numbers["reasons"]) == ("heuristic", ["no noise"])
    assert set(result.figures) == {"times", "curves", "proxies"}


def test_every_seed_is_timed_against_its_own_oracles(tmp_path: Path) -> None:
    """With `forget.per_seed` a run must not be compared with the oracles of another seed's forget set."""
    changes = ["forget.per_seed=true", "seeds=2", 'audit.metrics=["ua"]', "audit.oracles=1"]
    planned = plan(load_study("svhn", "smoke", changes))
    oracles = [role for role in planned.goal.roles if role["role"] == "oracle"]
    assert sorted({role["scored_by"] for role in oracles}) == [0, 1]
    assert len(oracles) == 2 * len(BANDS)
    result = made("svhn", changes, tmp_path, oracles=(0.5, 0.9))
    rows = {(row["set"], row["seed"]): row for row in result.measurements}
    assert rows["hardest", 1]["mean_privacy_loss"] == 2 * rows["hardest", 0]["mean_privacy_loss"]
    assert [rows["hardest", seed]["reached"] for seed in (0, 1)] == [True, False]


def test_other_times_stand_beside_the_one_that_decides(tmp_path: Path) -> None:
    result = made("svhn", ["seeds=5", 'audit.metrics=["mia_confidence"]'], tmp_path)
    beside = {(row[0], row[1]): row[2:] for row in result.tables["Beside the times"].rows}
    spread_over_seeds = "3.00 ± 1.58"
    assert beside["MIA_CONFIDENCE", "lower quartile"][:2] == (spread_over_seeds, spread_over_seeds)
    assert beside["MIA_CONFIDENCE", "hardest"][2:] == ("0.000", "0.50 ± 0.00", "0.700", "0.950", "0.03")
    assert ("MIA_AUC, beside MIA_CONFIDENCE", "hardest") in beside, "the continuous companion"
    trends = {row[:2]: row[2:] for row in result.tables["Trend of other statistics"].rows}
    assert trends["MIA_CONFIDENCE", "half of its own gap closed"] == ("1.00 (1.00 to 1.00)", "0.031", "1")
    assert trends["MIA_CONFIDENCE", "gap to the oracles before unlearning"][1:] == ("0.5", "1")
    assert trends["MIA_AUC, beside MIA_CONFIDENCE", "first entry"][1] == "0.031"
    row = next(row for row in result.measurements if row["set"] == "hardest" and row["seed"] == 2)
    assert (row["settled_epochs"], row["half_gap_epochs"], row["lowest_retain"]) == (6.0, 6.0, 0.7)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["gate.train_accuracy=0.99"], r"1 of 5 base models did not pass the gate .*at least 0\.99"),
        (["gate.attack=0.9"], "5 of 5 base models did not pass the gate"),
        (["explored=1"], "The seeds below 1 were looked at while the settings were chosen"),
        (["gate.train_accuracy=0.98", "gate.attack=0.8"], ""),
    ],
)
def test_a_base_model_that_fails_the_gate_decides_nothing(
    changes: list[str], sentence: str, tmp_path: Path
) -> None:
    result = made("svhn", ["seeds=5", *changes], tmp_path)
    words = {verdict.agreement for verdict in result.verdicts}
    assert words == ({"undecided"} if sentence else {"agrees"})
    for verdict, document in zip(result.verdicts, result.document()["verdicts"], strict=True):
        assert re.match(sentence, verdict.withheld)
        assert bool(verdict.withheld) == bool(sentence)
        assert document["why_undecided"] == verdict.withheld
        assert document["test"]["p"] < 0.05, "the numbers are shown all the same"
    assert len(result.tables[TITLE].rows) == 5


def test_the_table_of_base_models_says_which_pass(tmp_path: Path) -> None:
    rows = made("svhn", ["seeds=2", "gate.train_accuracy=0.99"], tmp_path).tables[TITLE].rows
    assert rows == (
        ("0", "1.000", "0.500", "0.800", "0.900", "yes"),
        ("1", "0.980", "0.500", "0.800", "0.900", "no"),
    )
