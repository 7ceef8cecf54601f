"""The one loop that unlearns and measures: when, on what, until when, and what divergence means."""

import copy
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import remanence as rm
from remanence.data import Split, digits
from remanence.experiments import (
    Evaluations,
    Trajectory,
    affordable_steps,
    every_steps,
    sampled,
    thinning_steps,
    unlearn_and_measure,
)
from remanence.experiments.unlearning_loop import read_trajectory
from remanence.models import small_conv
from remanence.storage import create, open_folder
from remanence.training import Checkpoints, Recipe
from remanence.types import Measurement
from remanence.unlearning import Finetune

METHOD = Finetune(Recipe(epochs=2, learning_rate=0.05, batch_size=60))


def small_split() -> Split:
    train, test = digits()
    train = train.take(train.ids[:200])
    return Split(train, test, rm.ForgetSet("f", train.ids[:20]))


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return small_conv(width=4)


def unlearn(
    model: nn.Module,
    metrics: Sequence[str] = ("ua", "mia"),
    at: Sequence[int] = (0, 3, 6),
    watched: Split | None = None,
    method: Finetune = METHOD,
    **options: Any,
) -> Trajectory:
    """On a copy of the model, with seed 1."""
    split = small_split()
    training = method.begin(copy.deepcopy(model), split, seed=1)
    return unlearn_and_measure(
        training, Evaluations(watched or split, tuple(metrics), set(at), seed=1), **options
    )


def test_what_is_measured_is_determined_by_the_seed() -> None:
    model = new_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = unlearn(model).rows
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [(row.metric, row.step) for row in rows] == [(m, s) for s in (0, 3, 6) for m in ("ua", "mia")]
    assert {(row.subset, row.seed) for row in rows} == {("f", 1)}
    assert rows == unlearn(model).rows


def test_it_is_measured_where_and_on_what_was_asked() -> None:
    split = small_split()
    watched = sampled(split, 30, seed=0)
    assert (len(watched.forget), len(watched.retain), len(watched.test)) == (20, 30, 30)
    assert np.isin(watched.retain.ids, split.retain.ids).all()
    assert watched.train.digest() == sampled(split, 30, seed=0).train.digest()
    assert watched.train.digest() != sampled(split, 30, seed=1).train.digest()
    whole = sampled(split, 10_000, seed=0)
    assert (len(whole.retain), len(whole.test)) == (180, len(split.test))
    model = new_model()
    rows = unlearn(model, ["test"], at=[0, 1, 2, 5], watched=watched).rows
    assert [row.step for row in rows] == [0, 1, 2, 5]
    assert all(row.value * 30 == pytest.approx(round(row.value * 30)) for row in rows)
    # measuring less does not change what is measured
    full = unlearn(model, ["ua"], at=[6]).rows
    part = unlearn(model, ["ua"], at=[1, 6], watched=watched).rows
    assert full[-1] == part[-1]


def test_it_stops_after_the_steps_asked_for_or_when_the_measurements_say_so() -> None:
    model, calls = new_model(), []

    def until(rows: Sequence[Measurement]) -> bool:
        calls.append(rows[-1].step)
        return rows[-1].step >= 4

    taken: list[tuple[int, int]] = []
    trajectory = unlearn(
        model, ["ua"], at=range(0, 7, 2), until=until, progress=lambda *pair: taken.append(pair)
    )
    assert calls == [0, 2, 4], "asked after every evaluation, and only then"
    assert (trajectory.last_step, trajectory.diverged) == (4, None)
    assert taken == [(step, 6) for step in range(1, 5)]
    assert unlearn(model, ["ua"], at=range(7), steps=3).last_step == 3
    assert unlearn(model, ["ua"], at=range(7), until=lambda rows: True).last_step == 0


def test_an_interrupted_run_continues_to_the_same_measurements(tmp_path: Path) -> None:
    model, undisturbed = new_model(), unlearn(new_model(), at=range(7))

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise StopError

    with pytest.raises(StopError):
        unlearn(model, at=range(7), checkpoints=Checkpoints(tmp_path), checkpoint_every=2, progress=stop)
    steps: list[int] = []
    resumed = unlearn(
        model,
        at=range(7),
        checkpoints=Checkpoints(tmp_path),
        checkpoint_every=2,
        progress=lambda done, total: steps.append(done),
    )
    assert steps == [5, 6], "continued from the checkpoint of step 4"
    assert resumed == undisturbed


def test_divergence_is_a_result_and_not_an_error() -> None:
    wild = Finetune(Recipe(epochs=2, learning_rate=1e30, batch_size=60))
    trajectory = unlearn(new_model(), ["test"], at=range(7), method=wild)
    assert isinstance(trajectory.diverged, rm.errors.NumericalError)
    assert "The loss became" in str(trajectory.diverged)
    assert 0 <= trajectory.last_step < 6
    assert trajectory.rows[0].step == 0, "what was measured before is kept"
    assert unlearn(new_model(), ["test"]).diverged is None


@pytest.mark.parametrize("diverged", [None, "The loss became nan at step 3."])
def test_a_trajectory_is_read_back(diverged: str | None, tmp_path: Path) -> None:
    rows = [Measurement("ua", "f", 0.5, step, 1) for step in (0, 2)]
    with create(tmp_path / "stage", "unlearn") as draft:
        draft.rows("measurements", map(asdict, rows))
        draft.document("unlearning", {"diverged": diverged})
    trajectory = read_trajectory(open_folder(tmp_path / "stage"), "unlearning")
    assert trajectory.rows == rows
    assert (None if trajectory.diverged is None else str(trajectory.diverged)) == diverged


@given(st.integers(1, 5000), st.integers(1, 256), st.integers(10, 60_000), st.integers(1, 60))
def test_watching_costs_no_more_than_training(steps: int, batch: int, watched: int, most: int) -> None:
    at = affordable_steps(steps, batch_size=batch, watched=watched, most=most)
    assert (at[0], at[-1]) == (0, steps)
    assert (np.diff(at) > 0).all()
    assert len(at) <= most + 1
    if len(at) > 2:  # the start and the end are measured in any case
        assert len(at) * watched <= 3 * batch * steps


def test_evaluations_are_dense_at_first() -> None:
    at = affordable_steps(1000, batch_size=64, watched=1000, most=20)
    assert at[:3].tolist() == [0, 1, 2]
    assert np.diff(at)[-1] > 100
    assert every_steps(10, 4).tolist() == [0, 4, 8, 10]
    assert thinning_steps(10, 4, first_every=2, until=5).tolist() == [0, 2, 4, 8, 10]
    assert thinning_steps(6, 4, first_every=1, until=100).tolist() == list(range(7))
    with pytest.raises(rm.InputError, match="`first_every` must be at least 1 step"):
        thinning_steps(10, 4, first_every=0, until=5)
    with pytest.raises(rm.InputError, match="`every` must be at least 1"):
        every_steps(10, 0)
    with pytest.raises(rm.InputError, match="`sample` must be at least 1"):
        sampled(None, 0, 0)  # type: ignore[arg-type]


def test_finetuning_never_sees_the_forget_set() -> None:
    """Poisoned forget inputs must leave the result unchanged to the bit."""
    train, test = digits()
    train = train.take(train.ids[:100])
    forget = rm.ForgetSet("f", train.ids[:20])
    poisoned = train.inputs.clone()
    poisoned[:20] = float("nan")
    spoiled = type(train)(train.ids, poisoned, train.labels, train.class_names)
    results = []
    for data in (train, spoiled):
        torch.manual_seed(0)
        model = small_conv(width=4)
        recipe = Recipe(epochs=1, learning_rate=0.05, batch_size=40)
        for _ in Finetune(recipe)(model, Split(data, test, forget), seed=3):
            pass
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)
