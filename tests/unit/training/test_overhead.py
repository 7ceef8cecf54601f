"""The budget of a recorder, with a clock of our own; and norms between measurements."""

import numpy as np
import pytest

from remanence.training.interpolation import interpolate_norms
from remanence.training.overhead_plan import OverheadPlan

EPOCHS, STEPS_PER_EPOCH, N = 150, 10, 100
TOTAL = EPOCHS * STEPS_PER_EPOCH


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def passes(overhead: float, cost: float, errors: list[float]) -> tuple[OverheadPlan, list[int]]:
    """A training of 150 epochs of ten seconds, with passes of `cost` seconds; the epochs after which one is made."""
    clock = Clock()
    plan = OverheadPlan(overhead, TOTAL, N, STEPS_PER_EPOCH, clock=clock)
    made = []
    for epoch in range(1, EPOCHS + 1):
        clock.now += 10.0
        plan.note_errors(errors[epoch - 1])
        step = epoch * STEPS_PER_EPOCH
        if plan.makes_pass(step):
            with plan.passing(step):
                clock.now += cost
            made.append(epoch)
    return plan, made


@pytest.mark.parametrize("overhead", [0.02, 0.05, 0.2])
def test_passes_keep_to_the_budget_and_the_last_is_at_the_end(overhead: float) -> None:
    plan, made = passes(overhead, 9.0, [1.0] * EPOCHS)
    assert 0.7 * overhead < plan.share <= overhead * 1.001
    assert made[-1] == EPOCHS
    assert made[0] < EPOCHS / 4, "most of the budget is spent early"


def test_nothing_is_spent_where_errors_are_negligible() -> None:
    """All examples are fitted after 20 epochs: later passes are those of the longest gap, and the end."""
    _, made = passes(0.05, 9.0, [1.0] * 20 + [1e-4] * 130)
    late = [epoch for epoch in made if epoch > 20]
    assert len(late) <= 3
    assert late[-1] == EPOCHS


def steps_in_flight(
    overhead: float, extra: float, *, shuffled: bool = True
) -> tuple[OverheadPlan, np.ndarray]:
    """Steps of one second, `extra` more if recorded; how often each example was measured."""
    clock = Clock()
    plan = OverheadPlan(overhead, TOTAL, N, STEPS_PER_EPOCH, clock=clock)
    counts, generator = np.zeros(N, np.int64), np.random.default_rng(0)
    for step in range(TOTAL):
        if step % STEPS_PER_EPOCH == 0:
            order = generator.permutation(N) if shuffled else np.arange(N)
        columns = order[step % STEPS_PER_EPOCH :: STEPS_PER_EPOCH]
        recorded = plan.records_step(columns, step)
        seconds = 1.0 + extra * recorded
        clock.now += seconds
        plan.note_step(columns, step, seconds, recorded=recorded)
        plan.note_errors(1.0)
        counts[columns] += recorded
    return plan, counts


@pytest.mark.parametrize("extra", [0.14, 0.5])
@pytest.mark.parametrize("shuffled", [True, False])
def test_steps_in_flight_keep_to_the_budget_and_reach_every_example(extra: float, shuffled: bool) -> None:
    plan, counts = steps_in_flight(0.05, extra, shuffled=shuffled)
    assert 0.045 < plan.share <= 0.0501
    assert plan.recorded_steps == pytest.approx(0.05 / extra * TOTAL, rel=0.1)
    assert counts.min() >= 0.4 * counts.mean()


def test_a_cheap_measurement_is_made_at_every_step() -> None:
    plan, counts = steps_in_flight(0.05, 0.001)
    assert counts.min() >= EPOCHS - 3  # some of the first steps are timed without it
    assert plan.share < 0.01


def test_interpolated_norms_follow_the_errors_and_keep_the_measured_ones() -> None:
    """Norms that are errors times a level per row and a constant per example are found again where it is known."""
    generator = np.random.default_rng(0)
    n, rows = 400, 30
    steps = np.arange(rows) * 10
    errors = generator.uniform(0.05, 1.4, (rows, n))
    levels = np.exp(generator.normal(size=rows))[:, None]
    truth = errors * levels * np.exp(0.1 * generator.normal(size=(1, n)))
    measured = generator.random((rows, n)) < 0.2
    measured[0] = True
    found = interpolate_norms(np.where(measured, truth, np.nan), errors, steps)
    np.testing.assert_array_equal(found[measured], truth[measured])
    ratio = found[~measured] / truth[~measured]
    assert np.abs(np.log(ratio)).mean() < 0.07, "half of the examples' own part, and the level"
    held = np.repeat(truth[:1], rows, axis=0)
    assert np.abs(np.log(held / truth)).mean() > 10 * np.abs(np.log(ratio)).mean()


def test_examples_that_a_row_has_not_seen_take_their_errors_from_its_neighbors() -> None:
    errors = np.array([[0.5, 0.5], [np.nan, 0.5], [0.5, 0.5]])
    norms = np.array([[2.0, 4.0], [np.nan, 4.0], [2.0, 4.0]])
    found = interpolate_norms(norms, errors, np.array([0, 10, 20]))
    assert 2.0 <= found[1, 0] <= 4.0
    assert np.isfinite(found).all()


def test_zero_errors_and_norms_stay_finite() -> None:
    errors = np.array([[0.0, 0.7], [0.0, 0.0], [1e-20, 0.0]])
    norms = np.array([[0.0, 3.0], [np.nan, np.nan], [0.0, 0.0]])
    found = interpolate_norms(norms, errors, np.array([1, 2, 3]))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
