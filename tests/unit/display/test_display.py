"""What results show in a notebook: small tables, pictures, nothing unescaped; and axes to draw on."""

import base64
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot

import remanence as rm
from remanence.display.html import human, table
from remanence.forecast import Expectation, Forecast
from remanence.requests.criterion import Criterion
from remanence.requests.plan import Member
from remanence.requests.request import Request
from remanence.training import RunSettings, train_run

MECHANISM = rm.Mechanism(sigma=0.1, sampling_rate=0.1, steps=10, batch_size=32)
MARKUP = "<script>alert('&')</script>"


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag == "img":
            self.pictures.append(dict(attrs))
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def trace(ids: list[str] | None = None) -> rm.Trace:
    norms = np.random.default_rng(0).lognormal(size=(3, 4))
    return rm.Trace(
        ids=np.array(ids or ["a", "b", "_c", "$d"]),
        steps=np.array([0, 5, 10]),
        norms=norms,
        mechanism=MECHANISM,
    )


def check_picture(tags: Tags) -> None:
    [picture] = tags.pictures
    assert picture["alt"]
    head, body = str(picture["src"]).split(",", 1)
    assert head == "data:image/png;base64"
    assert base64.b64decode(body).startswith(b"\x89PNG")


def test_a_trace_shows_itself() -> None:
    tags = Tags(trace()._repr_html_())
    check_picture(tags)
    assert "3, step 0 to 10" in tags.text
    assert "σ = 0.1 (assumed)" in tags.text
    assert pyplot.get_fignums() == []


def test_scores_show_who_is_largest_and_why_they_are_worth_little() -> None:
    scores = rm.Scores(
        "privacy_loss", np.arange(100), np.geomspace(1e-3, 10, 100), {"alpha": 8.0}, reasons=("It ranks.",)
    )
    tags = Tags(scores._repr_html_())
    check_picture(tags)
    words = tags.text
    assert words.index("99") < words.index("0")
    assert {"heuristic", "It ranks.", "alpha", "8"} <= set(words)


@pytest.mark.parametrize("what", ["ids", "name", "params", "reasons"])
def test_markup_in_scores_is_escaped(what: str) -> None:
    given = {"name": "s", "ids": np.array(["a", "b"]), "values": np.array([1.0, 2.0])}
    given |= {
        "ids": {"ids": np.array([MARKUP, "b"])},
        "name": {"name": MARKUP},
        "params": {"params": {MARKUP: MARKUP}},
        "reasons": {"reasons": (MARKUP,)},
    }[what]
    tags = Tags(rm.Scores(**given)._repr_html_())  # type: ignore[arg-type]
    assert "script" not in tags.seen
    assert MARKUP in " ".join(tags.text)


@pytest.mark.parametrize(
    "values", [[], [1.0], [0.0, 0.0], [np.inf, 1.0], [np.nan, np.nan], [-1.0, 1.0], [1.0, 1e300]]
)
def test_unusual_scores_still_show(values: list[float]) -> None:
    scores = rm.Scores("s", np.arange(len(values)), np.array(values))
    assert str(len(values)) in Tags(scores._repr_html_()).text
    assert scores.plot().get_xlabel() == "s"


def test_plot_draws_on_the_axes_it_is_given() -> None:
    _, mine = pyplot.subplots()
    assert trace().plot(ax=mine) is mine
    scores = rm.Scores("a_b", np.arange(3), np.arange(3.0))
    assert scores.plot(ax=mine) is mine
    assert mine.get_xlabel() == "a b"
    assert len(pyplot.get_fignums()) == 1


def test_examples_by_name_are_in_the_legend() -> None:
    axes = trace().plot(ids=["_c", "$d"])
    axes.figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    named = [text.get_text() for text in legend.get_texts()]
    assert any("_c" in each for each in named)
    assert any("d" in each for each in named[-1:])
    with pytest.raises(rm.errors.DataError, match="not in the trace"):
        trace().plot(ids=["nobody"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[rm.Run, rm.Run, rm.ForgetSet]:
    folder: Path = tmp_path_factory.mktemp("runs")
    train, _ = rm.load_dataset("digits")
    gone = rm.ForgetSet(MARKUP, train.ids[:40])
    recipe = rm.Recipe(epochs=1, learning_rate=0.1)
    for name, without in (("run", ()), ("oracle", tuple(gone.ids.tolist()))):
        train_run(
            RunSettings(data="digits", model="logistic", recipe=recipe, record=0, without=without),
            folder / name,
        )
    return rm.open_run(folder / "run"), rm.open_run(folder / "oracle"), gone


def test_an_audit_shows_itself(runs: tuple[rm.Run, rm.Run, rm.ForgetSet]) -> None:
    run, oracle, gone = runs
    [audit] = rm.audit_runs([run], gone, [oracle])
    tags = Tags(audit._repr_html_())
    check_picture(tags)
    assert "script" not in tags.seen
    assert any(MARKUP in each for each in tags.text)
    assert {"ua", "ra", "test", "mia"} <= set(tags.text)
    shown = [label.get_text() for label in audit.plot().get_yticklabels()]
    assert shown == [each.metric.name for each in audit.findings if each.distance is not None]


def test_an_audit_without_oracles_says_what_it_lacks(runs: tuple[rm.Run, rm.Run, rm.ForgetSet]) -> None:
    run, _, gone = runs
    [audit] = rm.audit_runs([run], gone, metrics=["ua"])
    tags = Tags(audit._repr_html_())
    assert tags.pictures == []
    assert "no reference value" in tags.text
    with pytest.raises(rm.InputError, match="oracles"):
        audit.plot()


def plan(high: float) -> rm.Plan:
    return rm.Plan(
        request=Request(rm.ForgetSet(MARKUP, np.arange(40)), "hash of a file"),
        model="hash of a model",
        members=tuple(Member(i, MARKUP, 1.0, 2.5 * i) for i in range(40)),
        expected=Expectation(0.6, 0.05, -0.4, 0.1),
        criterion=Criterion("excess", 0.6, 0.05),
        now={"excess": 0.3},
        forecast=Forecast(120.0, 40.0, high, 0.9, 0.8),
        seconds_per_step=0.5,
        retraining={"steps": 800.0, "seconds": 400.0},
        accuracy=(0.0, -0.01, 0.01),
        bound=rm.Bound(12.0, rm.Status.HEURISTIC),
        method="finetune",
        options={"learning_rate": 0.1},
        budget=500,
        action="unlearn",
        caveats=(MARKUP,),
    )


@pytest.mark.parametrize("high", [300.0, 500.0])
def test_a_plan_shows_itself(high: float) -> None:
    made = plan(high)
    tags = Tags(made._repr_html_())
    check_picture(tags)
    assert "script" not in tags.seen
    assert made.recommendation() in tags.text
    assert "12 (heuristic)" in tags.text
    assert any(f"120 (90%: 40 to {high:.0f};" in cell for cell in tags.text)
    axes = made.plot()
    assert axes.get_xlabel() == "steps to unlearn"
    assert axes.get_xlim()[1] >= 800


def test_tables_and_numbers() -> None:
    assert "&lt;" in table(("a",), [("<",)])
    assert [human(x) for x in (float("inf"), float("nan"), 2e5)] == ["inf", "nan", "2.0 × 10⁵"]


def test_types_import_no_matplotlib() -> None:
    code = "import sys, remanence.types; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
