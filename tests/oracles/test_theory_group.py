"""Group losses against exact small mechanisms, and on a trained model."""

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from remanence.data import digits
from remanence.errors import InputError
from remanence.forgetting import bands
from remanence.models import build_model
from remanence.study.catalog import load_study
from remanence.theory.group import group_loss, published_group_loss
from remanence.theory.group_moments import Coupled, CoupledUpper, Independent
from remanence.theory.privacy_loss import privacy_loss
from remanence.theory.sampled_gaussian import log_moment
from remanence.training import placed_steps, train_steps
from remanence.types import Mechanism, Status, Trace

RATE, BATCH = 0.4, 2.0
GRADIENTS = np.random.default_rng(3).normal(size=(7, 2))  # the last ones are forgotten
AXIS = np.linspace(-16, 16, 161)
PLANE = np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2)
CELL = (AXIS[1] - AXIS[0]) ** 2


def batches(gradients):
    """Every mini-batch's mean gradient over the fixed denominator, and its probability."""
    drawn = np.array(list(product((0, 1), repeat=len(gradients))), dtype=float).reshape(-1, len(gradients))
    chance = np.prod(np.where(drawn == 1, RATE, 1 - RATE), axis=1)
    return drawn @ gradients / BATCH, chance


@cache
def density(kept, noise):
    centres, chance = batches(GRADIENTS[:kept])
    out = np.zeros(len(PLANE))
    for centre, weight in zip(centres, chance, strict=True):
        out += weight * np.exp(-((PLANE - centre) ** 2).sum(axis=1) / (2 * noise**2))
    return out / (2 * np.pi * noise**2)


def exact(forgotten, order, noise):
    p, q = density(7, noise), density(7 - forgotten, noise)
    kept = (p > 0) & (q > 0)
    return float(np.log(np.sum(np.exp(order * np.log(p[kept]) + (1 - order) * np.log(q[kept]))) * CELL))


def coupled_exact(forgotten, order, noise):
    """The coupled expectation by enumerating every tuple of draws."""
    centres, chance = batches(GRADIENTS[len(GRADIENTS) - forgotten :])
    inner = centres @ centres.T / noise**2
    total = 0.0
    for chosen in product(range(len(centres)), repeat=order):
        pairs = inner[np.ix_(chosen, chosen)]
        total += np.prod(chance[list(chosen)]) * np.exp((pairs.sum() - np.trace(pairs)) / 2)
    return float(np.log(total))


def independent_exact(forgotten, order, noise):
    p = density(7, noise)
    centres, chance = batches(GRADIENTS[: len(GRADIENTS) - forgotten])
    total = 0.0
    for centre, weight in zip(centres, chance, strict=True):
        log_q = -((PLANE - centre) ** 2).sum(axis=1) / (2 * noise**2) - np.log(2 * np.pi * noise**2)
        with np.errstate(divide="ignore"):
            total += weight * np.log(np.sum(np.exp(order * np.log(p) + (1 - order) * log_q)) * CELL)
    return float(total)


def unit_gram(forgotten, noise):
    chosen = GRADIENTS[len(GRADIENTS) - forgotten :] / (BATCH * noise)
    return chosen @ chosen.T


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("noise", [2.0, 1.0, 0.7])
@pytest.mark.parametrize("forgotten", [1, 2, 3])
def test_exact_coupled_upper_and_independent_are_in_this_order(forgotten, order, noise):
    truth = exact(forgotten, order, noise)
    coupled = coupled_exact(forgotten, order, noise)
    upper = CoupledUpper(unit_gram(forgotten, noise), RATE).log_moment(order)
    assert 0 < truth <= coupled * (1 + 1e-9)
    assert coupled <= upper * (1 + 1e-9)
    assert coupled <= independent_exact(forgotten, order, noise)


@pytest.mark.parametrize("order", [2, 4, 9])
@pytest.mark.parametrize("ratio", [1e-6, 0.3, 2.0])
def test_one_example_is_the_binomial_formula(order, ratio):
    gram = np.array([[ratio**2]])
    truth = float(log_moment(order, 0.05, ratio))
    assert CoupledUpper(gram, 0.05).log_moment(order) == pytest.approx(truth, rel=1e-12)
    mechanism = Mechanism(1.0, 0.05, 50, 1)
    single = privacy_loss(np.full((1, 1), ratio), steps=[0], mechanism=mechanism, alpha=order)
    group = group_loss([gram], steps=[0], mechanism=mechanism, alpha=order, method="upper")
    assert group.value == pytest.approx(single.values[0], rel=1e-12)


def test_sampled_coupled_loss_meets_the_enumerated_one():
    gram = unit_gram(3, 2.0)
    sampled = Coupled(gram, RATE, pool=3000, draws=40000, seed=1).log_moment(4)
    assert sampled == pytest.approx(coupled_exact(3, 4, 2.0), rel=0.1)


def test_sampled_independent_loss_is_biased_low_and_rises_with_draws():
    noise, order = 2.0, 4
    centres, chance = batches(GRADIENTS)
    without, chance_without = batches(GRADIENTS[:4])
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            centres[rng.choice(len(centres), 400, p=chance)],
            without[rng.choice(len(without), 100, p=chance_without)],
        ]
    )
    gram = rows @ rows.T / noise**2
    few, many = (Independent(gram, 400, draws, seed=0).log_moment(order) for draws in (1, 2000))
    truth = independent_exact(3, order, noise)
    assert few < many < truth * 1.3
    # even one draw cannot fall to the true loss: the floor is the spread of mini-batch gradients
    assert few > 2 * exact(3, order, noise)


def test_independent_loss_sees_a_loss_where_nothing_is_forgotten():
    assert independent_exact(0, 2, 1.0) > 0.1
    assert exact(0, 2, 1.0) == pytest.approx(0, abs=1e-9)
    empty = group_loss([np.zeros((0, 0))], steps=[0], mechanism=Mechanism(1.0, RATE, 10, BATCH))
    assert empty.value == 0


def test_large_groups_keep_the_part_of_the_tail_that_float64_cannot_hold():
    # 400 equal gradients: v = 0.5 k with k binomial; the exact sum over k in log space, by the same integral
    size, rate, order = 400, 0.003, 3
    gram = np.full((size, size), 0.25)
    ours = CoupledUpper(gram, rate).log_moment(order)
    everyone = order * size * np.log(rate) + order * (order - 1) / 2 * (0.5 * size) ** 2
    assert everyone > 100
    assert everyone <= ours <= everyone * 1.05


def test_full_batches_have_a_closed_form_at_any_order():
    gram = unit_gram(3, 1.0)
    mechanism = Mechanism(1.0, 1.0, 20, 1)
    loss = group_loss([gram], steps=[0], mechanism=mechanism, alpha=2.5, composition="accountant")
    assert loss.value == pytest.approx(20 * 2.5 * gram.sum() / 2)


def test_published_baseline_grows_with_the_group():
    loss = lambda order: order * 0.01  # noqa: E731
    values = [published_group_loss(loss, size, alpha=4.0).value for size in (0, 1, 2, 4, 16)]
    assert values[:3] == pytest.approx([0, 0.04, (1 + 3.5 / 3) * 0.08])
    assert np.all(np.diff(values) > 0)
    # Mironov's group privacy: at most 3^c times the loss at order 2^c α
    assert values[-1] <= 3**4 * loss(16 * 4.0)
    assert published_group_loss(loss, 100_000, alpha=4.0).status is Status.VACUOUS


def test_rules_and_compositions_reach_groups():
    grams = [unit_gram(2, noise) for noise in (1.0, 2.0)]
    options = {"steps": [0, 5], "mechanism": Mechanism(1.0, RATE, 10, 1), "alpha": 3.0, "method": "upper"}
    low, high = (group_loss(grams, rule=rule, **options).value for rule in ("right", "left"))
    assert low < group_loss(grams, rule="trapezoid", **options).value < high
    assert group_loss(grams, rule="upper", **options).value == pytest.approx(high)
    printed = group_loss(grams, composition="printed", **options)
    assert printed.value > group_loss(grams, composition="stepwise", **options).value > low
    assert printed.status is Status.HEURISTIC


@pytest.mark.parametrize(
    ("grams", "steps", "message"),
    [
        ([np.eye(2)], [0, 1], "`grams` must hold one matrix per checkpoint, 2; got 1"),
        ([np.ones((2, 3))], [0], "must be square"),
        ([np.eye(2), np.eye(3)], [0, 1], "of one size"),
        ([np.full((2, 2), np.nan)], [0], "must be finite"),
        ([np.array([[1.0, 2.0], [0.0, 1.0]])], [0], "symmetric"),
        ([np.eye(2), np.eye(2)], [3, 1], "`steps` must increase"),
    ],
)
def test_bad_matrices_are_named(grams, steps, message):
    with pytest.raises(InputError, match=message):
        group_loss(grams, steps=steps, mechanism=Mechanism(1.0, 0.1, 10, 1))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"p": 0}, "`p`"),
        ({"alpha": 1.0}, "`alpha`"),
        ({"sigma": 0.0}, "`sigma`"),
        ({"method": "x"}, "`method`"),
    ],
)
def test_bad_settings_are_named(change, names):
    with pytest.raises(InputError, match=names):
        group_loss([np.eye(3)], steps=[0], mechanism=Mechanism(1.0, 0.1, 10, 1), **change)


def test_independent_needs_to_know_its_rows():
    with pytest.raises(InputError, match="`with_rows`"):
        group_loss([np.eye(3)], steps=[0], mechanism=Mechanism(1.0, 0.1, 10, 1), method="independent")


def test_coupled_loss_separates_the_five_bands_of_a_trained_model():
    """The demo's network and recipe at half the width, length and fewer checkpoints."""
    short = load_study("demo", "cpu", ["model.width=8", "train.record=8", "train.epochs=20"])
    assert_bands_are_separated(*trained_on_digits(short, seed=0))


@pytest.mark.data
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_coupled_loss_separates_the_five_bands_of_the_demo(seed):
    assert_bands_are_separated(*trained_on_digits(load_study("demo", "cpu"), seed))


def assert_bands_are_separated(grams, trace):
    loss = privacy_loss(trace)
    options = {"steps": trace.steps, "mechanism": trace.mechanism, "alpha": 8.0}
    found = {"coupled": [], "upper": [], "independent": [], "mean loss": []}
    for band in bands(loss, 100):
        chosen = np.isin(trace.ids, band.ids)
        own = [gram[np.ix_(chosen, chosen)] for gram in grams]
        found["coupled"].append(group_loss(own, **options).value)
        found["upper"].append(group_loss(own, method="upper", **options).value)
        found["independent"].append(independent_loss(chosen, grams, trace.mechanism, options))
        found["mean loss"].append(loss.values[chosen].mean())
    assert spearmanr(found["coupled"], found["mean loss"]).statistic == pytest.approx(1.0)
    assert spearmanr(found["upper"], found["mean loss"]).statistic == pytest.approx(1.0)
    spread = {name: max(values) / min(values) for name, values in found.items()}
    # the paper's form barely tells the bands apart, and not in their order
    assert spread["independent"] < 10 < 1000 < spread["coupled"]
    assert spearmanr(found["independent"], found["mean loss"]).statistic < 0.5


def independent_loss(forgotten, grams, mechanism, options):
    """The paper's estimator: mini-batch gradients of D and of D without the band."""
    rng = np.random.default_rng(0)
    batches = []
    for gram in grams:
        drawn = rng.random((40, len(gram))) < mechanism.sampling_rate
        drawn[32:, forgotten] = False
        batches.append(drawn @ gram @ drawn.T / mechanism.batch_size**2)
    return group_loss(batches, method="independent", with_rows=32, draws=200, **options).value


def trained_on_digits(study, seed):
    """The Gram matrix of all examples' gradients at each checkpoint of the demo's training, and the trace."""
    examples, _ = digits()
    recipe = study.train.recipe
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(study.model.name, examples, **study.model.options)
    total = recipe.total_steps(len(examples))
    due = placed_steps(total, study.train.record)
    grams = [gram_of_all(model, examples)]
    for step, _ in enumerate(train_steps(model, examples, recipe, seed=seed), start=1):
        if step in due:
            grams.append(gram_of_all(model, examples))
    mechanism = Mechanism(study.score.sigma, recipe.batch_size / len(examples), total, recipe.batch_size)
    norms = np.sqrt([np.diag(gram) for gram in grams])
    return grams, Trace(examples.ids, due, norms, mechanism)


def gram_of_all(model, examples):
    def loss_of(weights, x, y):
        return torch.nn.functional.cross_entropy(
            torch.func.functional_call(model, weights, (x[None],)), y[None]
        )

    was_training = model.training
    model.eval()
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0), chunk_size=200)
    parts = each(weights, examples.inputs, examples.labels)
    model.train(was_training)
    rows = torch.cat([part.flatten(1) for part in parts.values()], dim=1)
    return (rows @ rows.T).double().numpy()
