"""The budget of a recorder, with a clock of our own; and norms between measurements."""

from collections.abc import Callable

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


class Flight:
    """A training whose steps may be recorded: one second per step, and more where the test says so.

    Args:
        extra: what a step takes longer, by its number and whether it is recorded.
        overhead, epochs, per_epoch: the budget and the length of the training.
        n: number of examples; batches are over the first `seen` of them, all by default.
        upkeep: seconds that the question whether to record takes at each step.
        plain: seconds of a step that is not recorded, by its number.
        shuffled: whether every epoch has another order.
    """

    def __init__(
        self,
        extra: Callable[[int, bool], float],
        *,
        overhead: float = 0.05,
        epochs: int = EPOCHS,
        per_epoch: int = STEPS_PER_EPOCH,
        n: int = N,
        seen: int | None = None,
        upkeep: float = 0.0,
        plain: Callable[[int], float] = lambda step: 1.0,
        shuffled: bool = False,
    ) -> None:
        self.clock = Clock()
        self.plan = OverheadPlan(overhead, epochs * per_epoch, n, per_epoch, clock=self.clock)
        self.counts, self.extra, self.recorded = np.zeros(n, np.int64), 0.0, []
        generator, order = np.random.default_rng(0), np.arange(seen or n)
        for step in range(epochs * per_epoch):
            if shuffled and step % per_epoch == 0:
                generator.shuffle(order)
            columns = order[step % per_epoch :: per_epoch]
            with self.plan.upkeep():
                self.clock.now += upkeep
                recorded = self.plan.records_step(columns, step)
            longer = extra(step, recorded)
            seconds = plain(step) + longer
            self.clock.now += seconds
            self.plan.note_step(columns, step, seconds, recorded=recorded)
            self.plan.note_errors(1.0)
            self.counts[columns] += recorded
            self.extra += longer
            self.recorded += [step] * recorded

    def end(self, seconds: float) -> None:
        with self.plan.spending():
            self.clock.now += seconds


@pytest.mark.parametrize("extra", [0.14, 0.5])
@pytest.mark.parametrize("shuffled", [True, False])
def test_steps_in_flight_keep_to_the_budget_and_reach_every_example(extra: float, shuffled: bool) -> None:
    run = Flight(lambda _, recorded: extra * recorded, shuffled=shuffled)
    assert 0.045 < run.plan.share <= 0.0501
    assert run.plan.recorded_steps == pytest.approx(0.05 / extra * TOTAL, rel=0.1)
    assert run.counts.min() >= 0.4 * run.counts.mean()


def test_a_cheap_measurement_is_made_at_nearly_every_step() -> None:
    run = Flight(lambda _, recorded: 0.001 * recorded, shuffled=True)
    assert run.counts.mean() >= 0.94 * EPOCHS  # some steps are timed without it
    assert run.counts.min() >= 0.85 * EPOCHS
    assert run.plan.share < 0.01


def test_the_end_is_part_of_the_budget() -> None:
    """Steps are so expensive to record that most examples are only measured at the end, for which budget is left."""
    run = Flight(lambda _, recorded: 10.0 * recorded, epochs=30, per_epoch=100, n=1000)
    missing = (run.counts == 0).mean()
    assert run.plan.recorded_steps > 1
    assert missing > 0.5
    run.end(100.0 * missing)
    assert 0.04 < run.plan.share <= 0.0501


@pytest.mark.parametrize("upkeep", [0.002, 0.03])
def test_upkeep_is_part_of_the_budget(upkeep: float) -> None:
    """Every step pays for the question whether to record it, also when the answer is no until the end."""
    run = Flight(lambda _, recorded: 0.8 * recorded, upkeep=upkeep)
    assert 0.045 < run.plan.share <= 0.0501


def test_the_preparation_of_the_end_is_part_of_the_budget() -> None:
    """One example is in no batch: the pass at the end is over it alone, and still has its fixed cost."""
    run = Flight(lambda _, recorded: 0.5 * recorded, epochs=30, n=N + 1, seen=N)
    run.end(4.0)
    assert 0.04 < run.plan.share <= 0.0501


def test_preparing_the_first_recorded_step_is_charged_but_expected_of_no_other() -> None:
    run = Flight(lambda step, recorded: 0.5 * recorded + 10.0 * (step == 0))
    assert run.plan.spent == pytest.approx(run.extra, rel=0.01)
    assert 0.045 < run.plan.share <= 0.0501
    assert run.recorded[4] < 10 * STEPS_PER_EPOCH, "the preparation is not expected again"


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

    def plain(step: int) -> float:
        return 3.0 if step < 100 else 1.0

    run = Flight(lambda step, recorded: plain(step) * recorded, plain=plain)
    assert run.plan.spent == pytest.approx(run.extra, rel=0.1)


def test_a_measurement_that_is_cheaper_than_at_the_end_needs_no_budget() -> None:
    """In a run too short for its budget, recording the steps of one epoch costs less than a pass at the end."""
    run = Flight(lambda _, recorded: 0.5 * recorded, overhead=0.01, epochs=4)
    assert (run.counts == 1).all()


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
