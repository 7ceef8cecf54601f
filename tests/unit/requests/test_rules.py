"""When a request is done, which sets calibrate it, and what its ledger bounds."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from remanence.errors import InputError
from remanence.requests.calibration import CalibrationSettings
from remanence.requests.calibration_sets import DRAWS, draw_calibration_sets, draw_levels
from remanence.requests.criterion import Criterion, after_steps, criterion_for, monitored_settings
from remanence.requests.plan import _spent
from remanence.requests.plan_caveats import stream_caveats
from remanence.requests.request_ledger import anonymous_norms, group_bound
from remanence.training import Recipe, RunSettings, open_run, train_run
from remanence.types import Measurement, Mechanism, Scores, Status, Trace

LOSSES = Scores("privacy_loss", np.arange(400), np.linspace(0, 9, 400))
LABELS = np.arange(400) % 10


def rows(metric: str, *values: float) -> list[Measurement]:
    return [Measurement(metric, "request", value, 5 * i, 0) for i, value in enumerate(values)]


def test_the_mean_of_three_evaluations_must_hold_twice() -> None:
    criterion = criterion_for(0.3)
    values = (5.0, 0.2, 0.8, 0.1, 0.0, 0.5, 0.1, 0.0)  # means of three: 0.2, 0.5, 0.37, 0.3, 0.2, 0.2, 0.2
    duration = criterion.time(rows("excess", *values))
    assert (duration.value, duration.reached) == (20.0, True)
    assert not criterion.holds(rows("excess", 5.0, 0.2))
    assert not criterion.holds(rows("ua", 0.3, 0.3, 0.3))
    assert not criterion.holds([])


def test_less_sure_is_no_membership_and_far_less_sure_is_damage() -> None:
    criterion = criterion_for(0.5)
    assert criterion.is_close(0.5)
    assert criterion.is_close(-2.0)
    assert not criterion.is_close(0.6)
    assert not criterion.is_close(-2.1)
    assert criterion.is_close(-2.9, before=-1.0)  # it was unsure already
    assert criterion.is_close(-4.9, before=5.0)  # no farther below than it was above
    assert not criterion.holds(rows("excess", 5.0, -9.0, -9.0, -9.0))


def test_without_reference_models_the_forecast_steps_are_taken_and_accuracy_must_be_back() -> None:
    criterion = after_steps(10)
    dip = rows("test", 0.95, 0.5, 0.8, 0.94, 0.95) + rows("ra", 1.0, 0.6, 0.99, 0.99, 1.0)
    duration = criterion.time(dip)
    assert (duration.value, duration.reached) == (15.0, True)
    assert not criterion.holds(rows("test", 0.95, 0.95, 0.95))
    assert criterion.sentence().startswith("10 steps were taken or more, and accuracy")


def test_evaluations_are_dense_at_first_and_sparse_later(tmp_path: Path) -> None:
    recipe = Recipe(epochs=1, learning_rate=0.1, batch_size=16)
    train_run(RunSettings("digits", "mlp", recipe, record=0, model_options={"hidden": [4]}), tmp_path / "run")
    run = open_run(tmp_path / "run")
    at = monitored_settings(run, "finetune", {}, 1000, 0).at
    gaps = np.diff(at[:-1])
    epoch = recipe.steps_per_epoch(len(run.data()[0]))
    assert (gaps[0], gaps[-1]) == (epoch // 8, epoch // 2)
    assert (np.diff(gaps) >= 0).all()
    assert (at[0], at[-1]) == (0, 1000)


def test_a_model_that_lost_its_accuracy_is_not_done() -> None:
    criterion = Criterion("excess", 0.3, 0.05)
    shaken = rows("excess", 5.0, 0.3, 0.3, 0.3, 0.3) + rows("test", 0.95, 0.94, 0.86, 0.93, 0.97)
    duration = criterion.time(shaken)
    assert (duration.value, duration.reached) == (15.0, True)
    assert not criterion.holds(shaken[:3] + shaken[5:8])


def test_a_model_in_the_dip_of_a_reset_is_not_done() -> None:
    criterion = Criterion("excess", 0.3, 0.05)
    dip = rows("excess", 5.0, 0.3, 0.3, 0.3, 0.3) + rows("test", 0.95, 0.95, 0.95, 0.95, 0.95)
    dip += rows("ra", 1.0, 0.4, 0.8, 0.99, 1.0)
    duration = criterion.time(dip)
    assert (duration.value, duration.reached) == (15.0, True)
    assert "on test and on retained data is at most 2 points below" in criterion.sentence()


def test_evaluations_before_a_refuted_stop_do_not_count() -> None:
    criterion = Criterion("excess", 0.3, 0.05, not_before=15)
    duration = criterion.time(rows("excess", 5.0, 0.3, 0.3, 0.3, 0.3, 0.9))
    assert (duration.value, duration.reached) == (15.0, True)
    assert not criterion.holds(rows("excess", 5.0, 0.3, 0.3, 0.3))
    assert "at step 15 or later" in criterion.sentence()


def test_a_plan_adds_up_what_requests_have_cost_since_the_last_training() -> None:
    def row(seconds: float, method: str = "finetune", part_of: str = "") -> dict[str, object]:
        return {"seconds": seconds, "method": method, "part_of": part_of}

    retraining = {"seconds": 10.0}
    assert _spent([], retraining) == 0
    assert _spent([row(2), row(3)], retraining) == pytest.approx(0.5)
    assert _spent([row(2), row(9, "retrain"), row(1)], retraining) == pytest.approx(0.1)
    assert _spent([row(3, part_of="r"), row(3, part_of="r"), row(3)], retraining) == pytest.approx(0.3)
    assert not stream_caveats(0.0, 2.0)  # the first request: the recommendation itself says retrain
    assert not stream_caveats(0.5, 0.2)
    assert "will soon be cheaper" in stream_caveats(0.6, 0.2)[0]
    assert "is cheaper" in stream_caveats(0.9, 0.2)[0]


def test_calibration_sets_span_the_range_and_repeat_by_their_seed() -> None:
    made, again = (draw_calibration_sets(LOSSES, LABELS, count=40, sizes=(20, 80), seed=1) for _ in range(2))
    assert [forget_set.ids.tolist() for forget_set in made] == [
        forget_set.ids.tolist() for forget_set in again
    ]
    means = [LOSSES.values[forget_set.ids].mean() for forget_set in made]
    assert min(means) < 2 < 7 < max(means)
    assert all(20 <= len(forget_set.ids) <= 80 or forget_set.name.startswith("class") for forget_set in made)
    classes = [forget_set for forget_set in made if forget_set.name.startswith("class")]
    assert all(len(set(LABELS[forget_set.ids])) == 1 for forget_set in classes)
    assert {forget_set.name.split()[0] for forget_set in made} == set(DRAWS)


def test_levels_are_of_one_difficulty_each_from_the_easiest_to_the_hardest() -> None:
    levels = draw_levels(LOSSES, count=8, size=20)
    ranges = [(LOSSES.values[level.ids].min(), LOSSES.values[level.ids].max()) for level in levels]
    assert [level.name for level in levels] == [f"level {number}" for number in range(8)]
    assert all(len(level.ids) == 20 for level in levels)
    assert all(high < low for (_, high), (low, _) in pairwise(ranges))
    assert ranges[0][0] < 0.5
    assert ranges[-1][1] > 8.5


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="a quarter"):
        draw_calibration_sets(LOSSES, LABELS, count=20, sizes=(20, 200), seed=0)
    with pytest.raises(InputError, match="at least 20"):
        CalibrationSettings(sets=19)
    with pytest.raises(InputError, match="`models` must be at least 4 for a criterion; got 3"):
        CalibrationSettings(models=3)
    with pytest.raises(InputError, match="needs no calibration"):
        CalibrationSettings(method="retrain")


def test_the_ledgers_norms_bound_and_name_nobody() -> None:
    norms = np.random.default_rng(0).lognormal(-3, 1, (6, 50))
    mechanism = Mechanism(sigma=0.1, sampling_rate=0.1, steps=60, batch_size=5)
    trace = Trace(np.arange(50), np.arange(0, 60, 10), norms, mechanism=mechanism)
    kept = anonymous_norms(trace, np.arange(20))
    true = np.sort(norms[:, :20], axis=1)
    assert (kept >= true).all()
    assert (kept <= 1.0501 * true).all()
    assert (np.diff(kept, axis=1) >= 0).all()
    some, more = (group_bound(anonymous_norms(trace, np.arange(size)), trace) for size in (5, 20))
    assert 0 < some.value < more.value
    assert some.status is Status.HEURISTIC
    assert "point in the same direction" in some.assumptions[-1]
