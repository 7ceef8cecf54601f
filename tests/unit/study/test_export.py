"""Tables and pages for others."""

import csv
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
import pytest

from remanence.errors import InputError
from remanence.report import human
from remanence.report.latex import to_latex
from remanence.stages import Read, Stage, Store
from remanence.storage import Draft
from remanence.study.catalog import load_study
from remanence.study.cost_estimate import makespan
from remanence.study.export import write_table
from remanence.study.running import plan, store_folder
from remanence.study.sinks import to_mlflow, to_tensorboard


@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Stage):
    kind = "x"

    i: int
    needed: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        pass


def test_latex_is_escaped() -> None:
    text = to_latex(("name_a", "x"), [("50 % & more", "≥ 3.1 × 10⁻⁸ ± 1")])
    assert r"name\_a & x \\" in text
    assert r"50 \% \& more & $\geq$ 3.1 $\times$ 10$^{-8}$ $\pm$ 1 \\" in text
    assert text.startswith(r"\begin{tabular}{lr}")
    assert "σ" not in to_latex(("σ",), [("−3 ±≥ 10¹²",)])
    assert r"$-$3 $\pm$$\geq$ 10$^{12}$ \\" in to_latex(("σ",), [("−3 ±≥ 10¹²",)])


def test_what_people_read_compiles() -> None:
    """Every superscript that `human` writes is one exponent: TeX stops at two in a row."""
    for value in (3.1e-8, 4.2e12, 7.0e-123, 5.0):
        assert "^" not in re.sub(r"\$\^\{-?\d+\}\$", "", to_latex(("x",), [(human(value),)]))


def test_rows_with_different_columns_make_one_table(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": "x"}, {"a": 2.5, "c": True}, {"a": 3, "b": 7}]
    write_table(tmp_path / "t", rows)
    with (tmp_path / "t.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {"a": "1", "b": "x", "c": ""},
            {"a": "2.5", "b": "", "c": "True"},
            {"a": "3", "b": "7", "c": ""},
        ]
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert table == {"a": [1.0, 2.5, 3.0], "b": ["x", None, "7"], "c": [None, True, None]}
    write_table(tmp_path / "empty", [])
    assert not (tmp_path / "empty.csv").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_sink_that_is_not_installed_says_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (name, "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    planned = plan(load_study("proxies", "smoke"))
    with pytest.raises(InputError, match=f"pip install {name}"):
        if name == "mlflow":
            to_mlflow(planned, Store(tmp_path), "sqlite:///x.db")
        else:
            to_tensorboard(planned, Store(tmp_path), tmp_path)


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REMANENCE_STORE", str(tmp_path / "a"))
    assert store_folder() == tmp_path / "a"
    assert store_folder(tmp_path / "b") == tmp_path / "b"
    monkeypatch.delenv("REMANENCE_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store_folder() == tmp_path / "remanence" / "studies"


def test_the_time_of_a_plan_respects_workers_and_inputs() -> None:
    first = [Nothing(i=i) for i in range(4)]
    last = Nothing(i=9, needed=tuple(first))
    seconds = {stage.key: 2.0 for stage in (*first, last)}
    assert makespan([*first, last], seconds, 1) == 10.0
    assert makespan([*first, last], seconds, 2) == 6.0
    assert makespan([*first, last], seconds, 8) == 4.0
