import numpy as np
import pytest
from scipy.stats import spearmanr

from remanence import report
from remanence.demo.results import rank_agreement
from remanence.report import (
    image_uri,
    proxies_figure,
    time_to_unlearn_figure,
    to_svg,
    unlearning_curves_figure,
)
from remanence.trials import Duration


def bands(reached: bool = True) -> list[dict[str, object]]:
    each = [{"epochs": 3.0, "reached": True}, {"epochs": 10.0, "reached": reached}]
    interval = (0.0, 51.0) if reached else (0.0, None)
    summary = {"mean": 6.5, "interval": interval, "reached": 1 + reached, "seeds": 2, "each": each}
    return [
        {
            "name": name,
            "mean_privacy_loss": 10.0**i,
            "epochs_to_unlearn": {"mia": summary},
            "oracle": {"mia": {"mean": 0.5}},
            "curves": {"mia": [[0.1 * i, 0.5], [0.2, 0.5]]},
        }
        for i, name in enumerate("abcde")
    ]


def test_censored_runs_are_drawn_and_named_as_such() -> None:
    drawn = to_svg(time_to_unlearn_figure(bands(reached=False), {"mia": "MIA"}, 10))
    assert "not within 10 epochs" in drawn
    assert "not within" not in to_svg(time_to_unlearn_figure(bands(), {"mia": "MIA"}, 10))


def test_the_same_figure_is_the_same_text_and_scales() -> None:
    one, two = (to_svg(unlearning_curves_figure(bands(), "mia", "MIA", 0.05)) for _ in range(2))
    assert one == two
    head = one[: one.index(">")]
    assert one.startswith("<svg")
    assert "viewBox" in head
    assert " width=" not in head


def test_proxies_survive_a_constant_proxy() -> None:
    names = ["a", "b", "c", "d", "e"]
    values = {name: np.zeros(40) if name == "a" else np.arange(40.0) for name in names}
    figure = proxies_figure(np.arange(1.0, 41.0), values, dict.fromkeys(names, 0.5))
    assert len(figure.axes[0].lines) == 5


def test_numbers_as_people_write_them() -> None:
    assert [report.human(x) for x in (0, 0.0123, 163.4, 999, 19544, 3.66e-08)] == [
        "0",
        "0.0123",
        "163",
        "999",
        "2.0 × 10⁴",
        "3.7 × 10⁻⁸",
    ]


def test_images_are_inline() -> None:
    assert image_uri(np.eye(8)).startswith("data:image/png;base64,iVBOR")


def durations(*values: float | None) -> list[list[Duration]]:
    """One seed a band; None is one that never got there."""
    return [[Duration(30.0, False) if value is None else Duration(value, True)] for value in values]


def test_rank_agreement_is_spearman_with_ties() -> None:
    losses = [1.0, 2.0, 3.0, 4.0, 5.0]
    times = [0.0, 0.0, 0.0, 6.0, 15.0]
    assert rank_agreement(losses, durations(*times)) == pytest.approx(spearmanr(losses, times).statistic)
    assert rank_agreement(losses, durations(1, 1, 1, 1, 1)) is None


def test_a_censored_band_is_slower_than_one_that_took_as_long() -> None:
    assert rank_agreement([1.0, 2.0], durations(30.0, None)) == pytest.approx(1.0)
    assert rank_agreement([1.0, 2.0, 3.0], durations(5.0, None, None)) == pytest.approx(np.sqrt(3) / 2)
