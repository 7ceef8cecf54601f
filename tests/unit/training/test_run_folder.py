"""A run opened again: what it was trained on, what it is to be without, what was poisoned."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from remanence.data import digits
from remanence.errors import DataError, InputError, RunFolderError
from remanence.experiments import oracle_settings
from remanence.forgetting import read_forget_set_for, write_forget_sets
from remanence.stages import plain
from remanence.storage import create
from remanence.tasks import draw_poison
from remanence.training import Recipe, RunReference, open_run
from remanence.training.run_settings import RunSettings
from remanence.training.train_run import train_run
from remanence.types import ForgetSet

QUICK = Recipe(epochs=1, learning_rate=0.1)
IDS = digits()[0].ids[:30]
HALF = ForgetSet("half", IDS[:15])


def trained(out: Path, **changes: object) -> Path:
    train_run(RunSettings("digits", "mlp", QUICK, record=0, **changes), out)  # type: ignore[arg-type]
    return out


def test_an_oracle_never_saw_what_it_is_without(tmp_path: Path) -> None:
    run = open_run(trained(tmp_path / "o", without=tuple(IDS.tolist())))
    assert not run.was_trained_on(IDS).any()
    assert run.was_trained_on(digits()[0].ids[30:]).all()
    assert set(run.removed.tolist()) == set(IDS.tolist())
    assert len(run.data()[0]) == 1297 - 30
    # of what was removed, only the forget set at hand is part of the split
    assert len(run.split(HALF).train) == 1297 - 15
    assert len(run.split(HALF).retain) == 1297 - 30


def test_leaving_examples_out_is_training_on_the_rest(tmp_path: Path) -> None:
    without, all_of_them = (open_run(trained(tmp_path / n, without=w)) for n, w in (("a", (0, 1)), ("b", ())))
    assert without.folder.files()["weights.safetensors"] != all_of_them.folder.files()["weights.safetensors"]
    inputs = digits()[1].inputs[:8]
    with torch.no_grad():
        assert torch.isfinite(without.model()(inputs)).all()
    assert not without.model().training


def test_poison_is_kept_and_seen_again(tmp_path: Path) -> None:
    run = open_run(trained(tmp_path / "p", poison=tuple(IDS.tolist()), poison_variance=0.25))
    poison = run.poison
    assert poison is not None
    train, clean = run.data()[0], run.clean[0]
    differences = (train.inputs - clean.inputs)[torch.from_numpy(clean.positions(IDS))]
    torch.testing.assert_close(differences, poison.noise)
    others = clean.without(IDS)
    assert torch.equal(train.take(others.ids).inputs, others.inputs)
    assert poison.noise.std().item() == pytest.approx(0.5, rel=0.05)


def test_an_oracle_keeps_the_noise_of_the_poisoned_examples_that_stay(tmp_path: Path) -> None:
    run = open_run(trained(tmp_path / "p", poison=tuple(IDS.tolist())))
    oracle = oracle_settings(run, HALF, seed=99)
    train_run(oracle, tmp_path / "o")
    opened = open_run(tmp_path / "o")
    stay = IDS[15:]
    assert torch.equal(opened.data()[0].take(stay).inputs, run.data()[0].take(stay).inputs)
    assert not opened.was_trained_on(HALF.ids).any()


def test_an_examples_noise_does_not_depend_on_the_company() -> None:
    train, _ = digits()
    few, many = (draw_poison(train, IDS[:n], seed=3) for n in (2, 9))
    assert torch.equal(few.noise, many.noise[:2])
    assert not torch.equal(draw_poison(train, IDS[:2], seed=4).noise, few.noise)


def test_a_forget_set_may_come_from_the_data_or_from_what_the_run_saw(tmp_path: Path) -> None:
    run = open_run(trained(tmp_path / "r", poison=(3,)))
    for name, digest in (("clean", run.clean[0].digest()), ("seen", run.training_digest())):
        [file] = write_forget_sets(tmp_path / f"{name}.json", [HALF], data=digest)
        np.testing.assert_array_equal(read_forget_set_for(file, run).ids, HALF.ids)
    [file] = write_forget_sets(tmp_path / "other.json", [HALF], data="0" * 64)
    with pytest.raises(DataError, match="other data"):
        read_forget_set_for(file, run)


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="both"):
        RunSettings("digits", "mlp", QUICK, without=(1,), poison=(1,))
    with pytest.raises(DataError, match="not in"):
        trained(tmp_path / "u", without=(999_999,))
    trained(tmp_path / "u")  # what was refused does not block the folder
    with pytest.raises(DataError, match="`without` leaves out all 1297"):
        trained(tmp_path / "n", without=tuple(digits()[0].ids.tolist()))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with create(tmp_path / "t", "training") as draft:
        draft.document("something", {})
    with pytest.raises(RunFolderError, match="no model"):
        open_run(tmp_path / "t")


def test_a_run_gives_its_trace_or_says_that_there_is_none(tmp_path: Path) -> None:
    train_run(RunSettings("digits", "mlp", QUICK, record=2), tmp_path / "recorded")
    assert len(open_run(tmp_path / "recorded").trace().ids) == 1297
    with pytest.raises(RunFolderError, match=r"Expected a trace in .*; it has none"):
        open_run(trained(tmp_path / "bare")).trace()


def test_a_run_is_found_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    run = open_run(trained(tmp_path / "run"))
    reference = run.reference
    assert plain(reference) == {"digest": run.folder.digest()}, "the path is not part of a key"
    opened = reference.open()
    assert opened.folder.digest() == run.folder.digest()
    assert reference.open() is opened, "opened once per process"
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    copied = RunReference(reference.digest, str(tmp_path / "copy")).open()
    assert copied.folder.path == tmp_path / "copy"


def test_a_run_that_changed_since_the_work_was_planned_is_refused(tmp_path: Path) -> None:
    reference = open_run(trained(tmp_path / "run")).reference
    reference.open()
    shutil.rmtree(tmp_path / "run")
    trained(tmp_path / "run", seed=1)
    with pytest.raises(
        RunFolderError, match=r"Expected .*run as it was when the work was planned; it has changed"
    ):
        reference.open()
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunFolderError, match="not a folder made by Remanence"):
        reference.open()
    trained(tmp_path / "run")
    assert reference.open().settings.seed == 0, "the same content again"
