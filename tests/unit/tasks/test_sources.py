"""Tasks by name: the examples are those that were planned with, wherever they lie and whoever opens them."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from remanence.data import digits
from remanence.data.loading import DATASETS
from remanence.data.npz import read_npz
from remanence.errors import DataError, InputError, RemanenceError, UnknownNameError
from remanence.stages import Read, Stage, Store, run_stages
from remanence.storage import Draft
from remanence.tasks import DataSource, ModelSource, Recipe, TaskSource

RECIPE = Recipe(epochs=1, learning_rate=0.1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Stage):
    """A stage that opens its data in a worker process."""

    kind = "count"

    data: DataSource

    def compute(self, draft: Draft, read: Read) -> None:
        train, test = self.data.load()
        draft.document("sizes", {"train": len(train), "test": len(test)})


def write_pack(path: Path, n: int = 20, offset: int = 0) -> Path:
    pixels = np.random.default_rng(offset).integers(0, 256, (n, 8, 8), dtype=np.uint8)
    labels = np.arange(n) % 3
    np.savez(path, x_train=pixels, y_train=labels, x_test=pixels[:5], y_test=labels[:5])
    return path


def test_a_part_of_the_data_is_the_same_part_everywhere() -> None:
    source = DataSource("digits", train=200, test=50)
    train, test = source.read()
    again, _ = source.read()
    assert (len(train), len(test)) == (200, 50)
    assert train.ids.tolist() == again.ids.tolist()
    assert np.isin(train.ids, digits()[0].ids).all()
    assert len(DataSource("digits").read()[0]) == len(digits()[0])
    with pytest.raises(
        InputError, match=r"`data\.train` must be between 1 and the 1297 examples of the data set"
    ):
        DataSource("digits", train=1298).read()


def test_data_are_kept_in_memory_until_their_file_changes(tmp_path: Path) -> None:
    source = DataSource(str(write_pack(tmp_path / "mine.npz")))
    first = source.load()
    assert source.load()[0] is first[0]
    write_pack(tmp_path / "mine.npz", n=24, offset=1)
    assert len(source.load()[0]) == 24
    assert source.digested().digest != DataSource("digits").digested().digest


def test_other_examples_than_those_planned_with_are_refused(tmp_path: Path) -> None:
    planned = DataSource(str(write_pack(tmp_path / "mine.npz"))).digested()
    assert planned.digest
    assert planned.digested() == planned
    planned.load()
    write_pack(tmp_path / "mine.npz", offset=1)
    with pytest.raises(
        DataError, match=r"Expected the examples that .*mine\.npz had when the work was planned"
    ):
        planned.load()
    with pytest.raises(DataError, match="when the work was planned"):
        TaskSource(planned, ModelSource("mlp"), RECIPE).open()
    assert planned.digested().digest != planned.digest


def test_the_digest_is_of_what_is_used(tmp_path: Path) -> None:
    source = DataSource("digits")
    assert source.digested().digest != replace(source, train=200).digested().digest
    assert replace(source, digest="something else").digested() == source.digested()


def test_a_path_may_be_below_the_data_folder(tmp_path: Path) -> None:
    write_pack(tmp_path / "mine.npz")
    assert len(DataSource("mine.npz", data_dir=str(tmp_path)).load()[0]) == 20
    with pytest.raises(DataError, match="it is in neither"):
        DataSource("mine.npz", data_dir=str(tmp_path / "nowhere")).load()
    with pytest.raises(UnknownNameError, match="Did you mean 'digits'"):
        DataSource("digit").load()


def test_data_of_another_folder_are_not_taken_for_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when the two files have the same size and time, or when the data set goes by a name."""
    monkeypatch.setitem(DATASETS, "toy", lambda root: read_npz(root / "mine.npz"))
    digests = set()
    for offset, name in enumerate(("one", "two")):
        (tmp_path / name).mkdir()
        os.utime(write_pack(tmp_path / name / "mine.npz", offset=offset), (1, 1))
        monkeypatch.setenv("REMANENCE_DATA", str(tmp_path / name))
        digests |= {(source, DataSource(source).digested().digest) for source in ("mine.npz", "toy")}
    assert len(digests) == 4


def test_where_the_data_lie_is_not_part_of_a_key() -> None:
    here, there = (Count(data=DataSource("digits", data_dir=place)) for place in (None, "/mnt/data"))
    assert here.key == there.key
    assert here.params == {"data": {"source": "digits", "train": 0, "test": 0, "digest": ""}}


def test_workers_read_from_the_data_folder_without_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pack(tmp_path / "mine.npz")
    monkeypatch.delenv("REMANENCE_DATA", raising=False)
    before = dict(os.environ)
    stage = Count(data=DataSource("mine.npz", data_dir=str(tmp_path)).digested())
    store = Store(tmp_path / "store")
    run_stages([stage], store, workers=1)
    assert store.get(stage).document("sizes") == {"train": 20, "test": 5}
    assert dict(os.environ) == before


def test_a_worker_refuses_other_data(tmp_path: Path) -> None:
    stage = Count(data=DataSource(str(write_pack(tmp_path / "mine.npz"))).digested())
    write_pack(tmp_path / "mine.npz", offset=1)
    with pytest.raises(RemanenceError, match=r"when the work was planned.*Finished work is kept"):
        run_stages([stage], Store(tmp_path / "store"), workers=1)


def test_a_task_has_the_weights_of_its_seed_and_leaves_the_callers_random_state_alone() -> None:
    source = TaskSource(DataSource("digits"), ModelSource("mlp", {"hidden": [8]}), RECIPE)
    task = source.open()
    state = torch.get_rng_state()
    one, again, other = (task.new_model(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    assert source.open().train is task.train, "read once per process"
