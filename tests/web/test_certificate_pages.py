"""What bounds are claimed, each with its status; and the files that the dashboard brings along."""

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remanence.certify import certify, load_problem
from remanence.errors import DataError
from remanence.web.certificate_pages import read_certificate
from remanence.web.scatter_points import MOST, drawn_places, points

Visit = Callable[..., Any]


def test_every_claim_has_its_status(run: Path, visit: Visit, tmp_path: Path) -> None:
    found = certify(load_problem("digits"), runs=2, steps=30, attack_models=0)
    (tmp_path / "certificate.json").write_text(json.dumps(found.document()))
    page = visit([run], certificates=[tmp_path / "certificate.json"]).get("/certificates").text
    assert '<span class="pill certificate">certificate</span>' in page
    assert '<span class="pill heuristic">heuristic</span>; noise 0.1, assumed' in page
    assert f"{found.document()['k_instance']['median']:g}" in page
    assert found.steps.reasons[0] in page
    (tmp_path / "certificate.json").unlink()
    gone = visit([run], certificates=[tmp_path / "certificate.json"]).get("/certificates")
    assert gone.status_code == 200
    assert "the file is missing" in gone.text


def test_without_certificates_it_says_how_to_make_one(visit: Visit) -> None:
    page = visit([]).get("/certificates").text
    assert "remanence certify" in page
    assert "remanence dashboard RUN" in page


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"status": "certificate"}', "\x00"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(DataError, match="something else"):
        read_certificate(tmp_path / "file.json")


def test_the_scripts_are_those_that_were_noted() -> None:
    static = files("remanence.web") / "static"
    noted = json.loads((static / "vendored.json").read_text())
    assert set(noted) == {"htmx.min.js", "vega.min.js", "vega-lite.min.js", "vega-interpreter.js"}
    for name, facts in noted.items():
        assert hashlib.sha256((static / name).read_bytes()).hexdigest() == facts["sha256"]
        assert f"{facts['package']} {facts['version']}" in (static / "LICENSES.txt").read_text()


def test_many_points_are_drawn_as_few_with_the_extremes() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.lognormal(size=50_000), rng.normal(size=50_000)
    x[7], y[8] = np.inf, np.nan
    places = drawn_places(x, y)
    assert len(places) == MOST
    assert len(np.unique(places)) == MOST
    assert not {7, 8} & set(places.tolist())
    known = np.isfinite(x) & np.isfinite(y)
    for values in (x, y):
        assert {
            int(np.argmax(np.where(known, values, -np.inf))),
            int(np.argmin(np.where(known, values, np.inf))),
        } <= set(places.tolist())
    assert np.array_equal(places, drawn_places(x, y))
    json.dumps(points(x, y, np.zeros(50_000, np.int64), ("a",)), allow_nan=False)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_few_points_are_all_drawn(n: int) -> None:
    values = np.arange(n, dtype=np.float64)
    assert drawn_places(values, values).tolist() == list(range(n))
    json.dumps(points(values, values, np.zeros(n, np.int64), ("a",)), allow_nan=False)
