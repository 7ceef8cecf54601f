"""Export measurements to TensorBoard and MLflow; both are optional."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remanence.errors import InputError
from remanence.stages import Store
from remanence.study.export import finished
from remanence.study.running import Planned

_Run = tuple[str, Mapping[str, Any], list[dict[str, Any]]]


def to_tensorboard(planned: Planned, store: Store, folder: Path) -> int:
    """Write one TensorBoard run per run of the study that has measurements; return their number."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "Writing for TensorBoard needs the package tensorboard; install it with `pip install tensorboard`."
        ) from None
    count = 0
    for name, _, rows in _runs(planned, store):
        writer = SummaryWriter(str(folder / planned.study.name / name))
        for row in rows:
            writer.add_scalar(row["metric"], row["value"], row["step"])
        writer.close()
        count += 1
    return count


def to_mlflow(planned: Planned, store: Store, uri: str) -> int:
    """Log one MLflow run per run of the study that has measurements, in one experiment; return their number."""
    try:
        import mlflow
    except ImportError:
        raise InputError(
            "Logging to MLflow needs the package mlflow; install it with `pip install mlflow`."
        ) from None
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(f"{planned.study.name} {planned.study.preset}")
    count = 0
    for name, role, rows in _runs(planned, store):
        with mlflow.start_run(run_name=name):
            mlflow.log_params(dict(role))
            for row in rows:
                mlflow.log_metric(row["metric"], row["value"], step=row["step"])
        count += 1
    return count


def _runs(planned: Planned, store: Store) -> Iterator[_Run]:
    finished(planned, store)
    for role, stage in zip(planned.goal.roles, planned.goal.parts, strict=True):
        folder = store.get(stage)
        if folder.has("measurements.jsonl"):
            yield f"{stage.title.replace(', ', '/')}-{stage.key[-6:]}", role, folder.rows("measurements")
