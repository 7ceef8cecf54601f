"""Tuning: what is searched, what is chosen, and that an interrupted one continues where it was."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import remanence as rm
from remanence.experiments import TuneSettings, Tuning, read_tuning, tune, tuning
from remanence.experiments.oracles import oracle_seed
from remanence.experiments.search import Search
from remanence.report import tuning_figure
from remanence.stages import Tally
from remanence.training import Recipe, open_run
from remanence.training.run_settings import RunSettings
from remanence.training.train_run import train_run

RANGES = {"learning_rate": (1e-4, 1.0), "coefficient": (1e-6, 1e-2)}


def go(search: Search, count: int, batch: int = 1) -> list[tuple[dict[str, float], float]]:
    """Configurations and scores of a made-up landscape whose best is at a learning rate of 0.03."""
    tried: list[tuple[dict[str, float], float]] = []
    while len(tried) < count:
        for number, options in search.ask(min(batch, count - len(tried))):
            assert number == len(tried)
            score = 1 - abs(math.log10(options["learning_rate"] / 0.03)) / 5
            search.tell(number, score)
            tried.append((options, score))
    return tried


def search(seed: int = 0) -> Search:
    return Search(RANGES, seed=seed, first={"learning_rate": 0.01, "coefficient": 1e-4})


@pytest.mark.parametrize("batch", [1, 2])
def test_the_same_seed_asks_the_same_and_finds_the_best(batch: int) -> None:
    one, two = (go(search(), 14, batch) for _ in range(2))
    assert one == two
    assert one[0][0] == {"learning_rate": 0.01, "coefficient": 1e-4}
    assert max(score for _, score in one) > 0.95
    for name, (low, high) in RANGES.items():
        assert all(low <= options[name] <= high for options, _ in one)
    assert go(search(seed=1), 3)[1:] != one[1:3]


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
def test_wrong_settings_are_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rm.InputError, match=sentence):
        TuneSettings(**settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    recipe = Recipe(epochs=2, learning_rate=0.1)
    train_run(RunSettings("digits", "mlp", recipe, record=0, model_options={"hidden": (16,)}), out)
    return out


SMALL: dict[str, Any] = {
    "method": "l1_sparse",
    "options": {"epochs": 1},
    "trials": 3,
    "oracles": 1,
    "sample": 100,
}


def small(**changes: Any) -> TuneSettings:
    return TuneSettings(**SMALL | changes)


def test_tuning_chooses_draws_and_is_determined_by_its_seed(run: Path, tmp_path: Path) -> None:
    opened = open_run(run)
    result = tune(opened, small(), tmp_path / "one")
    assert [configuration.number for configuration in result.tried] == [0, 1, 2]
    assert result.tried[0].options == {"learning_rate": 0.01, "coefficient": 5e-4}
    assert result.choice.options.keys() == {"epochs", "learning_rate", "coefficient"}
    assert result.choice.untouched <= 1
    assert len(tuning_figure(result).axes) == 3
    again = tune(opened, small(), tmp_path / "two")
    assert (again.choice, again.tried, again.oracle) == (result.choice, result.tried, result.oracle)
    # finished: read, not computed
    assert tune(opened, small(), tmp_path / "one", resume=True) == read_tuning(tmp_path / "one")
    with pytest.raises(rm.InputError, match="trials = 3; now it is 4"):
        tune(opened, small(trials=4), tmp_path / "one", resume=True)
    with pytest.raises(rm.errors.RunFolderError, match="finished"):
        tune(opened, small(), tmp_path / "one")


def test_seeds_are_averaged_and_their_distances_kept(run: Path, tmp_path: Path) -> None:
    result = tune(open_run(run), small(seeds=2, trials=2), tmp_path / "out")
    assert all(len(configuration.distances) == 2 for configuration in result.tried)
    assert result.tried[0].distances[0] != result.tried[0].distances[1], "each seed is another run"


def test_a_configuration_that_diverges_is_a_bad_one_not_an_end(run: Path, tmp_path: Path) -> None:
    wide = small(method="finetune", ranges={"learning_rate": (0.01, 1e30)}, trials=4)
    result: Tuning = tune(open_run(run), wide, tmp_path / "wide")
    assert any(configuration.diverged for configuration in result.tried)
    assert result.choice.options["learning_rate"] < 1


class StoppedError(Exception):
    pass


@pytest.fixture
def tallies(monkeypatch: pytest.MonkeyPatch) -> list[Tally]:
    """What every batch of a tuning computed and reused."""
    kept: list[Tally] = []
    run_stages = tuning.run_stages

    def watched(*arguments: Any, **options: Any) -> Tally:
        kept.append(run_stages(*arguments, **options))
        return kept[-1]

    monkeypatch.setattr(tuning, "run_stages", watched)
    return kept


def stop_after(configurations: int) -> Callable[[str, float, float], None]:
    def progress(what: str, done: float, total: float) -> None:
        if what == "Trying configurations" and done == configurations:
            raise StoppedError

    return progress


def interrupted(run: Path, out: Path, configurations: int, **changes: Any) -> None:
    with pytest.raises(StoppedError):
        tune(open_run(run), small(**changes), out, progress=stop_after(configurations))


def test_an_interrupted_tuning_computes_only_what_is_missing(
    run: Path, tmp_path: Path, tallies: list[Tally]
) -> None:
    undisturbed = tune(open_run(run), small(trials=4), tmp_path / "quiet")
    oracle, *trials = [(tally.computed, tally.reused) for tally in tallies]
    assert (oracle, trials) == ((1, 0), [(1, 0)] * 4)
    out = tmp_path / "noisy"
    interrupted(run, out, 2, trials=4)
    oracles = {path: path.stat().st_ino for path in (out / "oracles").iterdir()}
    tallies.clear()
    resumed = tune(open_run(run), small(trials=4), out, resume=True)
    oracle, *trials = [(tally.computed, tally.reused) for tally in tallies]
    assert (oracle, trials) == ((0, 1), [(0, 1), (0, 1), (1, 0), (1, 0)])
    assert {path: path.stat().st_ino for path in (out / "oracles").iterdir()} == oracles
    assert (resumed.choice, resumed.tried, resumed.oracle) == (
        undisturbed.choice,
        undisturbed.tried,
        undisturbed.oracle,
    )
    assert not (out / "stages").exists(), "the attempts are no longer needed"
    assert not (out / "unfinished.toml").exists()


def test_a_tuning_resumed_with_another_number_of_workers_asks_for_as_many_at_a_time(
    run: Path, tmp_path: Path, tallies: list[Tally]
) -> None:
    """What is asked for depends on how many are asked for at a time, which is that of the beginning."""
    undisturbed = tune(open_run(run), small(trials=4, workers=2), tmp_path / "quiet")
    assert [tally.computed for tally in tallies[1:]] == [2, 2]
    interrupted(run, tmp_path / "noisy", 2, trials=4, workers=2)
    tallies.clear()
    resumed = tune(open_run(run), small(trials=4, workers=1), tmp_path / "noisy", resume=True)
    assert [(tally.computed, tally.reused) for tally in tallies[1:]] == [(0, 2), (2, 0)]
    assert resumed.tried == undisturbed.tried
    config = (tmp_path / "noisy" / "config.toml").read_text()
    assert "batch = 2" in config
    assert "workers" not in config
    # finished: it may be looked at with any number
    assert (
        tune(open_run(run), small(trials=4, workers=3), tmp_path / "noisy", resume=True).tried
        == resumed.tried
    )


def test_an_unfinished_tuning_is_not_begun_anew_unasked(run: Path, tmp_path: Path) -> None:
    interrupted(run, tmp_path / "out", 1)
    with pytest.raises(rm.errors.RunFolderError, match="holds an unfinished run; resume it"):
        tune(open_run(run), small(), tmp_path / "out")
    with pytest.raises(rm.InputError, match="seed = 0; now it is 1"):
        tune(open_run(run), small(seed=1), tmp_path / "out", resume=True)


def test_oracles_of_a_tuning_have_seeds_of_their_own(run: Path, tmp_path: Path) -> None:
    tune(open_run(run), small(oracles=2, trials=1, seed=3), tmp_path / "out")
    seeds = {open_run(path).settings.seed for path in (tmp_path / "out" / "oracles").iterdir()}
    assert seeds == {oracle_seed(3, 0), oracle_seed(3, 1)}
