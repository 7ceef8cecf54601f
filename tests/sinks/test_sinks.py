"""Measurements in the real TensorBoard and MLflow. `make test-sinks` installs both and runs this."""

from pathlib import Path

import pytest

from remanence.stages import Store, run_stages
from remanence.study.catalog import load_study
from remanence.study.running import Planned, plan
from remanence.study.sinks import to_mlflow, to_tensorboard

pytest.importorskip("tensorboard", reason="TensorBoard is not installed; `make test-sinks` installs it.")
pytest.importorskip("mlflow", reason="MLflow is not installed; `make test-sinks` installs it.")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, tiny: list[str]) -> tuple[Planned, Store]:
    planned, store = plan(load_study("time-to-unlearn", "smoke", tiny)), Store(tmp_path_factory.mktemp("s"))
    run_stages([planned.goal], store, workers=1)
    return planned, store


def rows_of(planned: Planned, store: Store) -> list[tuple[str, int, float]]:
    """(metric, step, value) of every run, as the store has them."""
    folders = [store.get(stage) for stage in planned.goal.needs]
    return [
        (row["metric"], row["step"], row["value"])
        for folder in folders
        if folder.has("measurements.jsonl")
        for row in folder.rows("measurements")
    ]


def test_tensorboard_shows_what_was_measured(done: tuple[Planned, Store], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    count = to_tensorboard(*done, tmp_path)
    events = sorted({file.parent for file in tmp_path.rglob("events.*")})
    assert count == len(events) > 0
    found = []
    for folder in events:
        accumulator = EventAccumulator(str(folder))
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            found += [(tag, event.step, event.value) for event in accumulator.Scalars(tag)]
    expected = rows_of(*done)
    assert sorted(found) == [(m, s, pytest.approx(v, rel=1e-6)) for m, s, v in sorted(expected)]


def test_mlflow_shows_what_was_measured(done: tuple[Planned, Store], tmp_path: Path) -> None:
    import mlflow

    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    count = to_mlflow(*done, uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (experiment,) = [each for each in client.search_experiments() if each.name.startswith("time-to-unlearn")]
    runs = client.search_runs([experiment.experiment_id])
    assert count == len(runs) > 0
    found = [
        (metric, point.step, point.value)
        for run in runs
        for metric in run.data.metrics
        for point in client.get_metric_history(run.info.run_id, metric)
    ]
    assert sorted(found) == sorted(rows_of(*done))
