"""When a request is done, which sets calibrate it, and what its ledger bounds."""

from __future__ import annotations

import numpy as np
import pytest

from remanence.errors import InputError
from remanence.forecast import Expectation
from remanence.requests.calibration import CalibrationSettings
from remanence.requests.calibration_sets import DRAWS, draw_calibration_sets
from remanence.requests.criterion import Criterion, criterion_for
from remanence.requests.plan import _spent
from remanence.requests.plan_caveats import stream_caveats
from remanence.requests.request_ledger import anonymous_norms, group_bound
from remanence.types import Measurement, Mechanism, Scores, Status, Trace

EXPECTED = Expectation(mia=0.3, mia_spread=0.05, log_odds=-1.0, log_odds_spread=0.4)
LOSSES = Scores("privacy_loss", np.arange(400), np.linspace(0, 9, 400))
LABELS = np.arange(400) % 10


def rows(metric: str, *values: float) -> list[Measurement]:
    return [Measurement(metric, "request", value, 5 * i, 0) for i, value in enumerate(values)]


def test_points_for_many_and_log_odds_for_few() -> None:
    assert criterion_for(20, EXPECTED) == Criterion("mia_confidence", 0.3, 0.03)
    assert criterion_for(19, EXPECTED) == Criterion("log_odds", -1.0, 0.8)


def test_it_must_hold_twice_and_on_both_sides() -> None:
    criterion = Criterion("mia_confidence", 0.3, 0.05)
    duration = criterion.time(rows("mia_confidence", 0.1, 0.28, 0.5, 0.34, 0.35, 0.9))
    assert (duration.value, duration.reached) == (15.0, True)
    assert not criterion.holds(rows("mia_confidence", 0.1, 0.28))
    assert not criterion.holds(rows("ua", 0.3, 0.3, 0.3))
    assert not criterion.holds([])


def test_a_model_that_lost_its_accuracy_is_not_done() -> None:
    criterion = Criterion("mia_confidence", 0.3, 0.05)
    shaken = rows("mia_confidence", 0.1, 0.3, 0.3, 0.3, 0.3) + rows("test", 0.95, 0.94, 0.86, 0.93, 0.97)
    duration = criterion.time(shaken)
    assert (duration.value, duration.reached) == (15.0, True)
    assert not criterion.holds(shaken[:3] + shaken[5:8])


def test_a_model_in_the_dip_of_a_reset_is_not_done() -> None:
    criterion = Criterion("mia_confidence", 0.3, 0.05)
    dip = rows("mia_confidence", 0.1, 0.3, 0.3, 0.3, 0.3) + rows("test", 0.95, 0.95, 0.95, 0.95, 0.95)
    dip += rows("ra", 1.0, 0.4, 0.8, 0.99, 1.0)
    duration = criterion.time(dip)
    assert (duration.value, duration.reached) == (15.0, True)
    assert "on test and on retained data is at most 2 points below" in criterion.sentence()


def test_evaluations_before_a_refuted_stop_do_not_count() -> None:
    criterion = Criterion("mia_confidence", 0.3, 0.05, not_before=15)
    duration = criterion.time(rows("mia_confidence", 0.3, 0.3, 0.3, 0.3, 0.3, 0.9))
    assert (duration.value, duration.reached) == (15.0, True)
    assert not criterion.holds(rows("mia_confidence", 0.3, 0.3, 0.3, 0.3))
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


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="a quarter"):
        draw_calibration_sets(LOSSES, LABELS, count=20, sizes=(20, 200), seed=0)
    with pytest.raises(InputError, match="at least 20"):
        CalibrationSettings(sets=19)
    with pytest.raises(InputError, match="0 or at least 20"):
        CalibrationSettings(small=3)
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
