import numpy as np
from matplotlib.colors import to_hex

from remanence import report
from remanence.experiments import Duration, summarize
from remanence.report import image_uri, interval_text, proxies_figure, to_svg
from remanence.report.study_figures import Curve, Point, Series, bars_figure, curves_figure, times_figure


def series(reached: bool = True) -> list[Series]:
    durations = [Duration(3.0, True), Duration(10.0, reached), Duration(10.0, reached)]
    by_seed = [(duration.value, duration.reached) for duration in durations]
    points = [Point(10.0**band, summarize(durations).median, by_seed) for band in range(5)]
    return [Series("MIA", points, limit=10.0), Series("UA", points, limit=10.0)]


def test_censored_runs_are_drawn_hollow_and_named_as_such() -> None:
    figure = times_figure(series(reached=False))
    assert "target not reached" in to_svg(figure)
    assert [panel.get_title() for panel in figure.axes] == ["MIA", "UA"], "one panel per series"
    markers = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    seeds = [to_hex(line.get_markerfacecolor()) for line in markers if line.get_alpha()]
    assert seeds.count("#ffffff") == 10
    assert len(seeds) == 15, "one marker per seed and forget set"
    medians = [line for line in markers if not line.get_alpha()]
    assert [(line.get_ydata()[0], to_hex(line.get_markerfacecolor())) for line in medians] == [
        (10.0, "#ffffff")
    ] * 5, "two of three did not reach it, so the median lies beyond the runs"
    assert "target not reached" not in to_svg(times_figure(series()))


def test_the_legend_of_bars_hides_none_of_them() -> None:
    bars = {"privacy_loss": [[(1.0, True)]], "confidence": [[(5.0, False)]]}
    figure = bars_figure({"UA": bars, "MIA": bars}, ["400 examples"], "epochs")
    figure.canvas.draw()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["privacy loss", "confidence"]
    box = legend.get_window_extent()
    assert not any(box.overlaps(panel.get_window_extent()) for panel in figure.axes)


def test_intervals_in_words() -> None:
    texts = [interval_text(interval) for interval in (None, (1.46, 8.0), (20.0, None))]
    assert texts == ["", "(1.5 to 8.0)", "(from 20.0)"]


def test_the_same_figure_is_the_same_text_and_scales() -> None:
    curves = [Curve(name, [0.0, 1.0], [[0.1, 0.5], [0.2, 0.5]], 0.5) for name in "abcde"]
    one, two = (to_svg(curves_figure({"MIA": curves})) for _ in range(2))
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
