from pathlib import Path
from typing import Any

import pytest

import remanence as rm
from remanence.report import tuning_figure
from remanence.training import Recipe, open_run
from remanence.training.run import RunSettings, train_run
from remanence.trials import Choice, Tried, TuneSettings, Tuning, read_choice, read_tuning, tune
from remanence.trials.attempt import balance
from remanence.trials.choice import enough, fastest_of_the_best, write_choice
from remanence.trials.search import Search
from remanence.types import Measurement

RANGES = {"learning_rate": (1e-4, 1.0), "coefficient": (1e-6, 1e-2)}


def tried(number: int, *values: float, **options: float) -> Tried:
    return Tried(number, options, tuple(range(1, len(values) + 1)), values)


def test_balance_counts_both_sides_and_all_metrics() -> None:
    rows = [Measurement("mia", "f", value, step, 0) for step, value in ((0, 0.1), (5, 0.6))] + [
        Measurement("test", "f", value, step, 0) for step, value in ((0, 0.9), (5, 0.7))
    ]
    found = balance(rows, {"mia": 0.5, "test": 0.9})
    assert found == [(0, pytest.approx(0.8)), (5, pytest.approx(0.85))]


def test_the_fastest_of_those_within_five_percent_wins() -> None:
    slow_best = tried(0, 0.5, 0.6, 0.7, 1.0, 1.0)
    fast_good = tried(1, 0.5, 0.96, 0.96, 0.96, 0.96)
    faster_worse = tried(2, 0.94, 0.94, 0.94, 0.94, 0.94)
    flash = tried(3, 1.0, 0.5, 0.5, 0.5, 0.5)  # one good evaluation is not staying there
    chosen, steps = fastest_of_the_best([slow_best, fast_good, faster_worse, flash], untouched=0.4)
    assert (chosen.number, steps) == (1, 2)
    assert flash.best == 0.5


def test_where_the_model_was_near_before_only_the_best_counts() -> None:
    still, better = tried(0, 0.97, 0.97, 0.97), tried(1, 0.9, 0.99, 0.99)
    assert enough([still, better], untouched=0.97) == 0.99
    chosen, steps = fastest_of_the_best([still, better], untouched=0.97)
    assert (chosen.number, steps) == (1, 2)


def test_all_diverged_is_one_sentence() -> None:
    lost = Tried(0, {"learning_rate": 1.0}, (), (), diverged=True)
    assert (lost.best, lost.steps_to(0.1)) == (0.0, None)
    with pytest.raises(rm.NumericalError, match="Every trial diverged"):
        fastest_of_the_best([lost], untouched=0.5)


def go(search: Search, count: int, ask: int = 1) -> list[Tried]:
    """A made-up landscape whose best is at a learning rate of 0.03."""
    import math

    while len(search.tried()) < count:
        for number, options in search.ask(ask):
            height = 1 - abs(math.log10(options["learning_rate"] / 0.03)) / 5
            search.tell(number, options, {"steps": [1, 2], "balance": [height] * 2, "diverged": False})
    return search.tried()


def search(path: Path, seed: int = 0) -> Search:
    return Search(path, RANGES, seed=seed, first={"learning_rate": 0.01, "coefficient": 1e-4})


def test_the_same_seed_asks_the_same_and_finds_the_best(tmp_path: Path) -> None:
    one, two = (go(search(tmp_path / name), 14) for name in ("a.log", "b.log"))
    assert one == two
    assert one[0].options == {"learning_rate": 0.01, "coefficient": 1e-4}
    assert max(each.best for each in one) > 0.95
    assert go(search(tmp_path / "c.log", seed=1), 3)[1:] != one[1:3]


@pytest.mark.parametrize("at_a_time", [1, 2])
def test_killed_and_begun_again_it_asks_the_same(tmp_path: Path, at_a_time: int) -> None:
    quiet = go(search(tmp_path / "quiet.log"), 10, at_a_time)
    journal = tmp_path / "noisy.log"
    for done in (0, 2, 4, 8):
        begun = search(journal)
        go(begun, done, at_a_time)
        begun.ask(at_a_time)  # asked, never told: the process was killed here
        with journal.open("ab") as file:
            file.write(b'{"op_code": 4, "torn')
        (tmp_path / "noisy.log.lock").touch()
    assert [each.options for each in go(search(journal), 10, at_a_time)] == [each.options for each in quiet]


def test_a_choice_is_read_back_and_nothing_else_is(tmp_path: Path) -> None:
    choice = Choice("finetune", {"learning_rate": 0.1}, 0.98, 12, 0.9, 25, "ab", "random", 0)
    write_choice(tmp_path / "choice.json", choice)
    assert read_choice(tmp_path / "choice.json") == choice
    (tmp_path / "other.json").write_text('{"remanence": "forget set"}')
    for name, sentence in (("other.json", "not a choice"), ("none.json", "not a file")):
        with pytest.raises(rm.InputError, match=sentence):
            read_choice(tmp_path / name)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "finetun"}, "Did you mean 'finetune'"),
        ({"method": "retrain"}, "Nothing is left to tune of retrain"),
        ({"method": "finetune", "options": {"learning_rate": 0.1}}, "Nothing is left to tune"),
        ({"method": "finetune", "ranges": {"coefficient": (1, 2)}}, "no hyperparameter of finetune"),
        (
            {"method": "finetune", "ranges": {"learning_rate": (1, 0.5)}},
            "must rise from above 0; got 1 to 0.5",
        ),
        ({"method": "finetune", "trials": 0}, "`trials` must be at least 1"),
        ({"method": "finetune", "metrics": ("mai",)}, "Did you mean 'mia'"),
        ({"method": "finetune", "metrics": ("klom",)}, "`klom` needs oracles"),
    ],
)
def test_wrong_wishes_are_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rm.InputError, match=sentence):
        TuneSettings(**settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    recipe = Recipe(epochs=2, learning_rate=0.1)
    train_run(RunSettings("digits", "mlp", recipe, record=0, model_options={"hidden": (16,)}), out)
    return out


def small(**changes: Any) -> TuneSettings:
    asked = {"method": "l1_sparse", "options": {"epochs": 1}, "trials": 3, "oracles": 1, "sample": 100}
    return TuneSettings(**asked | changes)


def test_tuning_chooses_draws_and_is_its_seed(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    found = tune(opened, small(), tmp_path / "one")
    assert [each.number for each in found.tried] == [0, 1, 2]
    assert found.tried[0].options == {"learning_rate": 0.01, "coefficient": 5e-4}
    assert found.choice.options.keys() == {"epochs", "learning_rate", "coefficient"}
    assert found.choice.untouched <= 1
    assert len(tuning_figure(found).axes) == 3
    again = tune(opened, small(), tmp_path / "two")
    assert (again.choice, again.tried, again.oracle) == (found.choice, found.tried, found.oracle)
    # finished: read, not computed
    assert tune(opened, small(), tmp_path / "one", resume=True) == read_tuning(tmp_path / "one")
    with pytest.raises(rm.InputError, match="trials = 3; now it is 4"):
        tune(opened, small(trials=4), tmp_path / "one", resume=True)
    with pytest.raises(rm.RunFolderError, match="finished"):
        tune(opened, small(), tmp_path / "one")


def test_a_configuration_that_diverges_is_a_bad_one_not_an_end(run: Path, tmp_path: Path) -> None:
    wide = small(method="finetune", ranges={"learning_rate": (0.01, 1e30)}, trials=4)
    found: Tuning = tune(open_run(run), wide, tmp_path / "wide")
    assert any(each.diverged for each in found.tried)
    assert found.choice.options["learning_rate"] < 1
