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


def test_a_cheap_measurement_is_made_at_nearly_every_step() -> None:
    plan, counts = steps_in_flight(0.05, 0.001)
    assert counts.mean() >= 0.94 * EPOCHS  # some steps are timed without it
    assert counts.min() >= 0.85 * EPOCHS
    assert plan.share < 0.01


def test_the_end_is_part_of_the_budget() -> None:
    """Steps are so expensive to record that most examples are only measured at the end, for which budget is left."""
    clock, steps_per_epoch, epochs, n = Clock(), 100, 30, 1000
    plan = OverheadPlan(0.05, epochs * steps_per_epoch, n, steps_per_epoch, clock=clock)
    measured = np.zeros(n, bool)
    for step in range(epochs * steps_per_epoch):
        columns = np.arange(step % steps_per_epoch, n, steps_per_epoch)
        recorded = plan.records_step(columns, step)
        seconds = 1.0 + 10.0 * recorded
        clock.now += seconds
        plan.note_step(columns, step, seconds, recorded=recorded)
        measured[columns] |= recorded
    assert plan.recorded_steps > 1
    assert measured.mean() < 0.5
    with plan.spending():
        clock.now += 100.0 * (~measured).mean()
    assert 0.04 < plan.share <= 0.0501


@pytest.mark.parametrize("each_step", [0.002, 0.03])
def test_upkeep_is_part_of_the_budget(each_step: float) -> None:
    """Every step pays for the question whether to record it, also when the answer is no until the end."""
    clock = Clock()
    plan = OverheadPlan(0.05, TOTAL, N, STEPS_PER_EPOCH, clock=clock)
    for step in range(TOTAL):
        columns = np.arange(step % STEPS_PER_EPOCH, N, STEPS_PER_EPOCH)
        with plan.upkeep():
            clock.now += each_step
            recorded = plan.records_step(columns, step)
        seconds = 1.0 + 0.8 * recorded
        clock.now += seconds
        plan.note_step(columns, step, seconds, recorded=recorded)
    assert 0.045 < plan.share <= 0.0501


def test_the_preparation_of_the_end_is_part_of_the_budget() -> None:
    """One example is in no batch: the pass at the end is over it alone, and still has its fixed cost."""
    clock, epochs = Clock(), 30
    plan = OverheadPlan(0.05, epochs * STEPS_PER_EPOCH, N + 1, STEPS_PER_EPOCH, clock=clock)
    for step in range(epochs * STEPS_PER_EPOCH):
        columns = np.arange(step % STEPS_PER_EPOCH, N, STEPS_PER_EPOCH)
        recorded = plan.records_step(columns, step)
        seconds = 1.0 + 0.5 * recorded
        clock.now += seconds
        plan.note_step(columns, step, seconds, recorded=recorded)
    with plan.spending():
        clock.now += 4.0
    assert 0.04 < plan.share <= 0.0501


def test_preparing_the_first_recorded_step_is_charged_but_expected_of_no_other() -> None:
    clock = Clock()
    plan = OverheadPlan(0.05, TOTAL, N, STEPS_PER_EPOCH, clock=clock)
    extra = 0.0
    for step in range(TOTAL):
        columns = np.arange(step % STEPS_PER_EPOCH, N, STEPS_PER_EPOCH)
        recorded = plan.records_step(columns, step)
        longer = 0.5 * recorded + 10.0 * (step == 0)
        clock.now += 1.0 + longer
        plan.note_step(columns, step, 1.0 + longer, recorded=recorded)
        extra += longer
        if step == 10 * STEPS_PER_EPOCH:
            assert plan.recorded_steps > 4, "the preparation is not expected again"
    assert plan.spent == pytest.approx(extra, rel=0.01)
    assert 0.045 < plan.share <= 0.0501


def test_errors_are_not_read_if_that_leaves_nothing_for_the_last_pass() -> None:
    clock = Clock()
    plan = OverheadPlan(0.05, TOTAL, N, STEPS_PER_EPOCH, clock=clock)
    read = 0
    for step in range(TOTAL):
        clock.now += 1.0
        if plan.allows_errors(step):
            read += 1
            with plan.spending():
                clock.now += 0.1
    assert 0 < read < TOTAL
    with plan.passing(TOTAL):
        clock.now += 10.0
    assert 0.045 < plan.share <= 0.0501


def test_the_account_is_right_where_steps_become_faster() -> None:
    """The first steps of a process are slower; a recorded one is compared with plain ones of its own time."""
    clock = Clock()
    plan = OverheadPlan(0.05, TOTAL, N, STEPS_PER_EPOCH, clock=clock)
    extra = 0.0
    for step in range(TOTAL):
        columns = np.arange(step % STEPS_PER_EPOCH, N, STEPS_PER_EPOCH)
        recorded = plan.records_step(columns, step)
        plain = 3.0 if step < 100 else 1.0
        seconds = plain * (1.0 + recorded)
        clock.now += seconds
        plan.note_step(columns, step, seconds, recorded=recorded)
        extra += plain * recorded
    assert plan.spent == pytest.approx(extra, rel=0.1)


def test_a_measurement_that_is_cheaper_than_at_the_end_needs_no_budget() -> None:
    """In a run too short for its budget, recording the steps of one epoch costs less than a pass at the end."""
    clock, epochs = Clock(), 4
    plan = OverheadPlan(0.01, epochs * STEPS_PER_EPOCH, N, STEPS_PER_EPOCH, clock=clock)
    counts = np.zeros(N, np.int64)
    for step in range(epochs * STEPS_PER_EPOCH):
        columns = np.arange(step % STEPS_PER_EPOCH, N, STEPS_PER_EPOCH)
        recorded = plan.records_step(columns, step)
        seconds = 1.0 + 0.5 * recorded
        clock.now += seconds
        plan.note_step(columns, step, seconds, recorded=recorded)
        counts[columns] += recorded
    assert (counts == 1).all()


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
    assert np.abs(np.log(ratio)).mean() < 0.07, "most of the examples' own part, and the level"
    held = np.repeat(truth[:1], rows, axis=0)
    assert np.abs(np.log(held / truth)).mean() > 10 * np.abs(np.log(ratio)).mean()


def test_the_part_of_an_example_is_a_mean_of_its_measurements() -> None:
    """Single factors are noise around a lasting one: the mean of several is closer to it than the nearest is."""
    generator = np.random.default_rng(1)
    n, rows = 300, 60
    steps, errors = np.arange(rows), generator.uniform(0.3, 1.0, (rows, n))
    lasting = errors * np.exp(0.5 * generator.normal(size=(1, n)))
    noisy = lasting * np.exp(0.5 * generator.normal(size=(rows, n)))
    measured = generator.random((rows, n)) < 0.2
    measured[0] = True
    found = interpolate_norms(np.where(measured, noisy, np.nan), errors, steps)
    own = np.log(found / lasting)
    own -= np.median(own, axis=1, keepdims=True)  # the level is that of the noisy norms
    assert np.abs(own[~measured]).mean() < 0.25, (
        "less than half of 0.4, the mean noise, and 0.4, the mean own part"
    )


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
