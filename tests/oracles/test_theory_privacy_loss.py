"""Compositions against independent accountants and the tables of the notes."""

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_poisson_subsampled_gaussian
from opacus.accountants.analysis.rdp import compute_rdp

from remanence.theory.privacy_loss import privacy_loss, worst_case_loss
from remanence.types import Mechanism, Status

TABLE = Mechanism(sigma=1.0, sampling_rate=0.01, steps=1000, batch_size=1, max_norm=None)
ALPHAS = (2, 4, 8, 16)


def loss(alpha, composition, p=None, mechanism=TABLE, ratio=1.0):
    norms = np.full((1, 1), ratio * mechanism.sigma * mechanism.batch_size)
    return float(
        privacy_loss(norms, steps=[0], mechanism=mechanism, alpha=alpha, composition=composition, p=p).values[
            0
        ]
    )


@pytest.mark.parametrize(("alpha", "value"), [(2, 0.17181), (4, 0.36315), (8, 0.89364), (16, 3087.9)])
def test_accountant_equals_dp_accounting_and_opacus(alpha, value):
    ours = loss(alpha, "accountant")
    assert ours == pytest.approx(
        1000 * _compute_rdp_poisson_subsampled_gaussian(0.01, 1.0, [alpha])[0], rel=1e-6
    )
    assert ours == pytest.approx(
        compute_rdp(q=0.01, noise_multiplier=1.0, steps=1000, orders=[alpha])[0], rel=1e-6
    )
    assert ours == pytest.approx(value, rel=5e-5)


@pytest.mark.parametrize(
    ("composition", "p", "values", "rel"),
    [
        ("stepwise", None, (0.19956, 0.42703, 56.55, 4538), 2e-4),
        ("stepwise", 30e3, (0.17487, 0.37010, 1.0106, 3224.6), 5e-5),
        ("stepwise", 3e6, (0.17184, 0.36322, 0.89483, 3089.2), 5e-5),
        ("stepwise", 1e9, (0.17181, 0.36315, 0.89365, 3087.9), 5e-5),
        ("pathwise", 10, (0.19038, 0.40536, 1.604, 3959), 2e-4),
        ("pathwise", 1e6, (0.17181, 0.36315, 0.89365, 3087.9), 5e-5),
        ("printed", None, (1349.6, 1698.9, 3.9e5, 1.5e7), 2e-2),
    ],
)
def test_table_of_constant_gradients(composition, p, values, rel):
    assert [loss(alpha, composition, p) for alpha in ALPHAS] == pytest.approx(values, rel=rel)


@pytest.mark.parametrize(
    ("composition", "p", "value"),
    [
        ("accountant", None, 2.2222),
        ("stepwise", None, 2.5849),
        ("stepwise", 15e3, 2.2549),
        ("stepwise", 1.5e6, 2.2225),
        ("pathwise", 10, 2.4383),
        ("printed", None, 3877),
    ],
)
def test_table_of_full_batches(composition, p, value):
    mechanism = Mechanism(sigma=30.0, sampling_rate=1.0, steps=500, batch_size=1)
    assert loss(8, composition, p, mechanism, ratio=1 / 30) == pytest.approx(value, rel=1e-4)


def test_cifar_scale_with_and_without_the_batch_size():
    mechanism = Mechanism(sigma=0.01, sampling_rate=0.00256, steps=58650, batch_size=128)
    norms, options = np.ones((1, 1)), {"steps": [0], "mechanism": mechanism, "composition": "accountant"}
    assert privacy_loss(norms, **options).values[0] == pytest.approx(1.3, rel=0.05)
    raw = privacy_loss(norms, scale="raw", **options)
    assert raw.values[0] == pytest.approx(2.3e9, rel=0.05)
    assert any("not divided by the batch size" in reason for reason in raw.reasons)
    assert privacy_loss(norms, sigma=0.001, **options).values[0] == pytest.approx(1.4e7, rel=0.05)


def test_no_loss_exceeds_the_worst_case_where_there_is_one():
    mechanism = Mechanism(
        1.0, 0.01, 1000, 1, sampling="poisson", denominator="fixed", assumed=False, max_norm=1.0
    )
    cap = worst_case_loss(mechanism, alpha=8)
    assert cap.value == pytest.approx(0.89364, rel=1e-5)
    assert cap.status is Status.CERTIFICATE
    norms = np.linspace(0, 1, 9)[None]
    for composition in ("pathwise", "stepwise", "accountant"):
        values = privacy_loss(norms, steps=[0], mechanism=mechanism, composition=composition).values
        assert np.all(values <= cap.value)
    free = privacy_loss(norms, steps=[0], mechanism=TABLE, composition="stepwise").values
    assert free.max() > 50
