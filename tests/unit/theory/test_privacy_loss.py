from dataclasses import replace

import numpy as np
import pytest

from remanence.errors import InputError
from remanence.theory.composition import COMPOSITIONS
from remanence.theory.privacy_loss import privacy_loss, privacy_losses, worst_case_loss
from remanence.theory.sampled_gaussian import log_moment
from remanence.types import Mechanism, Status, Trace

SOUND = Mechanism(2.0, 0.1, 10, 4, sampling="poisson", denominator="fixed", assumed=False)
NORMS = np.array([[8.0, 4.0, 0.0], [4.0, 6.0, 0.0], [2.0, 1.0, 0.0]])
STEPS = np.array([0, 4, 8])


def account(norms, rule, steps=STEPS, mechanism=SOUND):
    options = {"alpha": 4, "composition": "accountant", "rule": rule}
    return privacy_loss(norms, steps=steps, mechanism=mechanism, **options).values


def by_hand(norms):
    return log_moment(4, 0.1, np.asarray(norms) / 8).sum() / 3


def test_rules_fill_the_steps_between_checkpoints():
    column = NORMS[:, 1]
    right = [column[1]] * 4 + [column[2]] * 6
    left = [column[0]] * 4 + [column[1]] * 4 + [column[2]] * 2
    upper = [6.0] * 4 + [6.0] * 4 + [1.0] * 2
    assert account(NORMS, "right")[1] == pytest.approx(by_hand(right))
    assert account(NORMS, "left")[1] == pytest.approx(by_hand(left))
    assert account(NORMS, "upper")[1] == pytest.approx(by_hand(upper))
    assert account(NORMS, "trapezoid")[1] == pytest.approx((by_hand(right) + by_hand(left)) / 2)
    assert account(NORMS, "right")[2] == 0


def test_steps_before_the_first_checkpoint_take_it():
    assert account(NORMS[1:], "left", STEPS[1:])[0] == pytest.approx(by_hand([4] * 8 + [2] * 2))


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("rule", ["right", "left", "trapezoid", "upper"])
def test_equal_runs_say_what_one_run_says(composition, rule):
    options = {"steps": STEPS, "mechanism": SOUND, "composition": composition, "rule": rule, "alpha": 3.5}
    one = privacy_loss(NORMS, p=40.0, **options)
    three = privacy_loss(np.stack([NORMS] * 3), p=40.0, **options)
    assert three.values == pytest.approx(one.values, rel=1e-12)
    assert three.params["runs"] == 3


def test_stepwise_over_runs_is_the_formula_step_by_step():
    rng = np.random.default_rng(0)
    norms = rng.gamma(2.0, 2.0, (3, 10, 5))
    alpha, p, q = 5.0, 7.0, SOUND.sampling_rate
    direct = np.zeros(5)
    for t in range(1, 11):
        i = 10 - t
        order = 1 + (alpha - 1) * (p / (p - 1)) ** i
        power = 1.0 if t == 1 else p
        logs = power * log_moment(order, q, norms[:, t - 1] / 8)
        direct += ((p - 1) / p) ** i * np.log(np.exp(logs).mean(axis=0)) / power / (alpha - 1)
    ours = privacy_loss(
        norms, steps=np.arange(1, 11), mechanism=SOUND, alpha=alpha, p=p, composition="stepwise"
    ).values
    assert ours == pytest.approx(direct, rel=1e-10)


def test_pathwise_over_runs_takes_the_best_p_of_the_grid():
    norms = np.random.default_rng(1).gamma(2.0, 2.0, (4, 3, 6))
    options = {"steps": STEPS, "mechanism": SOUND, "alpha": 6.0}
    best = privacy_loss(norms, **options)
    singles = [privacy_loss(norms, p=p, **options).values for p in best.params["p"]]
    assert best.values == pytest.approx(np.min(singles, axis=0))
    assert np.all(best.values >= privacy_loss(norms.mean(axis=0), p=100, **options).values * 0.5)


def test_several_alphas_and_sigmas_in_one_call():
    trace = Trace(np.array([7, 8, 9]), STEPS, NORMS, SOUND)
    table = privacy_losses(trace, alphas=(2, 8), sigmas=(0.5, 2.0))
    assert set(table) == {(2.0, 0.5), (2.0, 2.0), (8.0, 0.5), (8.0, 2.0)}
    assert table[8.0, 2.0].status is Status.ESTIMATE
    assert table[8.0, 0.5].status is Status.HEURISTIC
    assert np.array_equal(table[2.0, 0.5].ids, [7, 8, 9])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"assumed": True}, "assumed"),
        ({"sampling": "shuffled"}, "Poisson"),
        ({"denominator": "random"}, "denominator"),
        ({"couples_examples": True}, "BatchNorm"),
    ],
)
def test_what_breaks_a_theorem_makes_a_heuristic_and_says_so(change, word):
    scores = privacy_loss(NORMS, steps=STEPS, mechanism=replace(SOUND, **change))
    assert scores.status is Status.HEURISTIC
    assert len(scores.reasons) == 1
    assert word in scores.reasons[0]


def test_status_follows_from_the_mechanism():
    options = {"steps": STEPS, "mechanism": SOUND}
    assert privacy_loss(NORMS, **options).status is Status.ESTIMATE
    assert privacy_loss(NORMS, composition="accountant", **options).status is Status.ESTIMATE
    assert privacy_loss(NORMS, composition="printed", **options).status is Status.HEURISTIC
    assert privacy_loss(NORMS, everywhere=True, **options).status is Status.CERTIFICATE


def test_bounds_that_hold_everywhere_stand_for_every_step():
    held = privacy_loss(
        NORMS, steps=STEPS, mechanism=SOUND, everywhere=True, composition="accountant", alpha=4
    )
    assert held.values[0] == pytest.approx(by_hand([8.0] * 10))


def test_a_vacuous_loss_is_returned_as_such():
    scores = privacy_loss(NORMS[:, :2] * 1e3, steps=STEPS, mechanism=SOUND)
    assert scores.status is Status.VACUOUS
    assert np.all(np.isfinite(scores.values))
    assert "2 of 2 values are above 100 nats" in scores.reasons[-1]
    infinite = privacy_loss(NORMS[:, :1] * 1e200, steps=STEPS, mechanism=replace(SOUND, assumed=True))
    assert infinite.status is Status.VACUOUS
    assert np.isposinf(infinite.values[0])


def test_a_small_p_leads_to_astronomical_orders_not_to_nan():
    options = {"steps": STEPS, "mechanism": replace(SOUND, steps=5000), "composition": "stepwise", "p": 1.5}
    values = privacy_loss(NORMS, **options).values
    assert values[2] == 0
    assert values[0] > 1e100


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("rate", [0.01, 1.0])
@pytest.mark.parametrize("alpha", [1.0001, 8.0, 1e5])
def test_nothing_overflows_silently(composition, rate, alpha):
    mechanism = replace(SOUND, sampling_rate=rate, sigma=1e-5, steps=1000)
    for scale in (1e-200, 1e-30, 1e30, 1e150, 1e300):
        for runs in (1, 3):
            norms = np.full((runs, 3, 3), scale) * [0.0, 1.0, 3.0]
            scores = privacy_loss(
                norms, steps=STEPS, mechanism=mechanism, alpha=alpha, composition=composition
            )
            assert scores.values[0] == 0
            assert np.all(scores.values >= 0)
            if scale >= 1e150:
                assert "no useful bounds" in scores.reasons[-1]


def test_no_worst_case_without_a_norm_bound():
    bound = worst_case_loss(SOUND)
    assert np.isinf(bound.value)
    assert bound.status is Status.VACUOUS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 1.0}, "`alpha` must be a finite number above 1; got 1.0"),
        ({"alpha": np.nan}, "`alpha`"),
        ({"sigma": 0.0}, "`sigma` must be a finite number above 0; got 0.0"),
        ({"p": 1.0}, "`p` must be a finite number above 1"),
        ({"steps": [0, 4, 3]}, "`steps` must increase"),
        ({"steps": [0, 4, 11]}, "`steps` must not pass the end of training, step 10"),
        ({"steps": [0, 4]}, "`norms` must have one row per checkpoint"),
        ({"steps": None}, "`steps` must be given together with norms"),
        ({"mechanism": None}, "`mechanism` must be given together with norms"),
        ({"composition": "exact"}, "`composition` must be one of"),
        ({"rule": "middle"}, "`rule` must be one of"),
        ({"scale": "paper"}, "`scale` must be one of"),
    ],
)
def test_bad_settings_are_named(change, message):
    options = {"steps": STEPS, "mechanism": SOUND, **change}
    with pytest.raises(InputError, match=message):
        privacy_loss(NORMS, **options)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_bad_norms_are_named(value):
    norms = NORMS.copy()
    norms[1, 2] = value
    with pytest.raises(
        InputError, match=r"`norms` must be finite and not negative; got .* for id 2 at step 4"
    ):
        privacy_loss(norms, steps=STEPS, mechanism=SOUND)
    with pytest.raises(InputError, match="`norms` must be"):
        privacy_loss(np.ones(3), steps=STEPS, mechanism=SOUND)


def test_runs_must_match():
    one = Trace(np.arange(3), STEPS, NORMS, SOUND)
    other = Trace(np.arange(3), STEPS + 1, NORMS, SOUND)
    with pytest.raises(InputError, match="same steps; trace 1"):
        privacy_loss([one, other])


def test_a_max_norm_below_a_recorded_norm_is_refused_unless_training_clips():
    low = replace(SOUND, max_norm=5.0)
    with pytest.raises(InputError, match="`max_norm` must bound every gradient norm; got 5, but a norm of 8"):
        privacy_loss(NORMS, steps=STEPS, mechanism=low)
    with pytest.raises(InputError, match="clipped=True"):
        Trace(np.arange(3), STEPS, NORMS, low)
    clipped = replace(low, clipped=True)
    scores = privacy_loss(NORMS, steps=STEPS, mechanism=clipped, alpha=4, composition="accountant")
    same = privacy_loss(
        np.minimum(NORMS, 5.0), steps=STEPS, mechanism=SOUND, alpha=4, composition="accountant"
    )
    assert scores.values == pytest.approx(same.values)
    with pytest.raises(InputError, match="`max_norm` must be given"):
        replace(SOUND, clipped=True)


def test_interpolated_norms_never_give_a_certificate():
    measured = np.ones(NORMS.shape, bool)
    whole = Trace(np.arange(3), STEPS, NORMS, SOUND, measured=measured)
    assert privacy_loss(whole, everywhere=True).status is Status.CERTIFICATE
    measured[1, 0] = False
    part = Trace(np.arange(3), STEPS, NORMS, SOUND, measured=measured)
    scores = privacy_loss(part, everywhere=True)
    assert scores.status is Status.ESTIMATE
    assert scores.reasons[-1] == "1 of 9 norms were interpolated between measured ones; they bound nothing."
    with pytest.raises(InputError, match="`measured` must have one row per checkpoint"):
        Trace(np.arange(3), STEPS, NORMS, SOUND, measured=measured[:2])
