"""The settings of a run, and how its folder is written."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from remanence.data import Examples, TableSettings
from remanence.errors import InputError
from remanence.models import is_import_path
from remanence.stages import IN_KEY_IF_GIVEN, NOT_IN_KEY
from remanence.storage import TRACE_FILES, UNFINISHED, Draft, Folder, open_folder, seal_in_place, write_trace
from remanence.tasks import (
    ASSUMED_SIGMA,
    DataSource,
    ModelSource,
    Poison,
    Recipe,
    Task,
    TaskSource,
    draw_poison,
)
from remanence.tasks.canaries import flip_coins
from remanence.tasks.devices import AUTO, resolve_device
from remanence.tasks.importing import import_task
from remanence.tasks.poison import VARIANCE, write_poison
from remanence.training.checkpoints import write_weights
from remanence.training.placement import Placement
from remanence.training.trust import trust
from remanence.types import Ids, Measurement, Trace, as_ids, check_positive


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run; written into its folder as config.toml.

    Args:
        data: name or path of a data set; empty for a run of a `task`.
        model: name of a model, or `package.module:function`; empty for a run of a `task`.
        recipe: how to train.
        seed: random seed for the initial weights, the batch order and the noise.
        model_options: keyword arguments of the model.
        data_dir: folder of the data sets.
        table: how to read the data if they are a table; its features are fitted when training begins.
        record: number of checkpoints of the trace; 0 for no trace.
        placement: placement of these checkpoints: `even`, `log` or `adaptive`.
        sigma: the noise to assume in the accounting if training adds none.
        checkpoint_every: steps between checkpoints from which the run can be resumed; 0 for one epoch.
        keep_checkpoints: keep all of these checkpoints, to make a trace from them later.
        without: ids to leave out of training; the run is then an oracle for them.
        poison: ids of examples whose inputs get Gaussian noise, which the metric `gus` tests for.
        poison_variance: variance of that noise, on the scale of the network's inputs.
        poison_seed: random seed of that noise; None for `seed`. An oracle must use that of the run it is compared with.
        task: import path of a task that brings data and model, instead of their names.
        data_digest: digest of the data of that task, by which the run recognizes them; empty to accept any.
        device: where to compute.
        canaries: ids of examples each of which a fair coin included in training or put into `without`; made by
            `with_canaries`.
    """

    data: str
    model: str
    recipe: Recipe
    seed: int = 0
    model_options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = field(default=None, metadata=NOT_IN_KEY)
    table: TableSettings | None = field(default=None, metadata=IN_KEY_IF_GIVEN)
    record: int = 35
    placement: Placement = "adaptive"
    sigma: float = ASSUMED_SIGMA
    checkpoint_every: int = 0
    keep_checkpoints: bool = False
    without: tuple[int | str, ...] = ()
    poison: tuple[int | str, ...] = ()
    poison_variance: float = VARIANCE
    poison_seed: int | None = None
    task: str = ""
    data_digest: str = ""
    device: str = field(default=AUTO, metadata=NOT_IN_KEY)
    canaries: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        check_positive("poison_variance", self.poison_variance)
        if both := set(self.without) & set(self.poison):
            raise InputError(
                f"An example left out of training cannot be poisoned; {next(iter(both))!r} is both."
            )

    def with_canaries(self, ids: Ids) -> RunSettings:
        """The same settings with canaries: a coin for each, by the run's seed, leaves it out of training or not."""
        for other, what in ((self.without, "left out of training"), (self.poison, "poisoned")):
            if both := set(other) & set(ids.tolist()):
                raise InputError(f"A canary must not be {what} otherwise; {next(iter(both))!r} is both.")
        left_out = ids[~flip_coins(ids, self.seed)].tolist()
        return replace(self, canaries=tuple(ids.tolist()), without=(*self.without, *left_out))

    @property
    def noise_seed(self) -> int:
        """Seed of the poison."""
        return self.seed if self.poison_seed is None else self.poison_seed

    @property
    def source(self) -> TaskSource:
        """The task of the run, by names."""
        data = DataSource(self.data, data_dir=self.data_dir, table=self.table)
        model = ModelSource(self.model, self.model_options)
        return TaskSource(data, model, self.recipe, self.task, self.device)

    def with_fitted_table(self) -> RunSettings:
        """The same settings with the features of a table fitted; unchanged if the data are no table."""
        return replace(self, table=self.source.data.fitted().table)

    def open_task(self) -> Task:
        """Open the task; a task by import path keeps its own recipe."""
        if not self.task:
            return self.source.open()
        task = import_task(self.task)
        return replace(task, device=resolve_device(self.device))

    @property
    def data_name(self) -> str:
        """What to call the data in a sentence."""
        return self.data or f"the data of {self.task or 'a task'}"

    @property
    def model_name(self) -> str:
        """What to call the model in a sentence."""
        return self.model or f"the model of {self.task or 'a task'}"

    def same_data(self, other: RunSettings) -> bool:
        """Whether both name the same data."""
        names = ("data", "data_dir", "table", "task", "data_digest")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def code(self) -> str:
        """The import path that opening the task executes; empty if it is only made of our own names."""
        return self.task or (self.model if is_import_path(self.model) else "")

    def draw_poison(self, train: Examples) -> Poison | None:
        """Draw the noise of the poisoned examples; None if there are none."""
        if not self.poison:
            return None
        ids = as_ids(self.poison)
        return draw_poison(train, ids, variance=self.poison_variance, seed=self.noise_seed)


def seal_run(
    out: Path,
    settings: RunSettings,
    model: nn.Module,
    rows: Sequence[Measurement] = (),
    *,
    trace: Trace | None = None,
    poison: Poison | None = None,
    own_code: bool = True,
) -> Folder:
    """Write all parts of a run into its folder and seal it.

    Args:
        out: folder of the run.
        settings: what the run was made with.
        model: the trained model.
        rows: what was measured during training.
        trace: the trace; None if none was recorded.
        poison: the noise that was added to some examples.
        own_code: the import path in `settings`, if there is one, was given by this user and is trusted from now on.
    """
    draft = Draft(out)
    draft.config(asdict(settings))
    write_weights(draft, model)
    draft.rows("measurements", map(asdict, rows))
    files = ["config.toml", "weights.safetensors", "measurements.jsonl"]
    if trace is not None:
        write_trace(draft, trace)
        files += TRACE_FILES
    if poison is not None:
        write_poison(draft, poison)
        files.append("poison.safetensors")
    seal_in_place(out, "training", files)
    if not settings.keep_checkpoints:
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / UNFINISHED).unlink(missing_ok=True)
    sealed = open_folder(out, "training")
    if own_code and settings.code:
        trust(sealed)
    return sealed
