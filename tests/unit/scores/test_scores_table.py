import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import remanence as rm
from remanence.cli.main import run
from remanence.scores import ScoreTable, available_scores, read_scores, score_table, write_scores
from remanence.storage import create, open_folder, write_trace

SIGMAS = (0.01, 0.001, 0.0005, 0.0001)


def trace(n: int = 40, *, text: bool = False, bare: bool = False) -> rm.Trace:
    rng = np.random.default_rng(0)
    norms = rng.lognormal(size=(4, n))
    ids = np.arange(100, 100 + n)
    return rm.Trace(
        ids.astype(str) if text else ids,
        np.array([0, 10, 20, 30]),
        norms,
        rm.Mechanism(sigma=0.05, sampling_rate=0.1, steps=30, batch_size=4),
        None if bare else np.exp(-norms),
        None if bare else 1 - np.exp(-norms),
        provenance={"data": "d" * 64},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with create(tmp_path / "run", "training") as draft:
        write_trace(draft, trace())
    return tmp_path / "run"


def test_all_that_the_trace_allows() -> None:
    assert list(score_table(trace()).columns) == list(available_scores(trace()))
    assert "confidence" not in score_table(trace(bare=True)).columns
    assert "privacy_loss" in score_table(trace(bare=True)).columns


def test_several_noise_levels_are_several_columns() -> None:
    table = score_table(trace(), ["privacy_loss"], sigmas=SIGMAS)
    assert list(table.columns) == [f"privacy_loss sigma={sigma:g}" for sigma in SIGMAS]
    for sigma in SIGMAS:
        alone = rm.theory.privacy_loss(trace(), sigma=sigma)
        assert np.array_equal(table.columns[f"privacy_loss sigma={sigma:g}"].values, alone.values)
    both = score_table(trace(), ["privacy_loss"], alphas=[2, 4], sigmas=[0.1, 0.2])
    assert list(both.columns)[1] == "privacy_loss alpha=2 sigma=0.2"


def test_spearman_is_scipys() -> None:
    table = score_table(trace())
    expected = spearmanr(np.stack([s.values for s in table.columns.values()], axis=1)).statistic
    assert np.allclose(table.spearman(), expected)
    ids = np.arange(3)
    flat = ScoreTable(
        {"a": rm.Scores("a", ids, np.array([1.0, 2, np.inf])), "b": rm.Scores("b", ids, np.ones(3))}
    )
    assert np.array_equal(flat.spearman(), [[1, np.nan], [np.nan, np.nan]], equal_nan=True)


def test_a_table_is_of_one_set_of_examples() -> None:
    one, other = (rm.Scores("s", np.arange(i, i + 3), np.ones(3)) for i in (0, 1))
    with pytest.raises(rm.InputError, match="same ids; 'b'"):
        ScoreTable({"a": one, "b": other})
    with pytest.raises(rm.InputError, match="at least one"):
        ScoreTable({})


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
@pytest.mark.parametrize("text", [False, True])
def test_a_table_comes_back_as_it_went(tmp_path: Path, suffix: str, text: bool) -> None:
    table = score_table(trace(text=text), sigmas=[0.01, 1e-6])
    path = tmp_path / f"t{suffix}"
    write_scores(path, table)
    again = read_scores(path)
    assert list(again.columns) == list(table.columns)
    kept = table.ids.tolist() if suffix != ".csv" else trace().ids.tolist()  # CSV knows no types
    assert again.ids.tolist() == kept
    for name, scores in table.columns.items():
        assert np.array_equal(again.columns[name].values, scores.values)
        assert again.columns[name].status == scores.status


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_an_infinite_loss_survives(tmp_path: Path, suffix: str) -> None:
    values = np.array([1.0, np.inf])
    lost = rm.Scores("privacy_loss", np.arange(2), values, status=rm.Status.VACUOUS)
    write_scores(tmp_path / f"t{suffix}", ScoreTable({"privacy_loss": lost}))
    again = read_scores(tmp_path / f"t{suffix}").columns["privacy_loss"]
    assert np.array_equal(again.values, values)
    assert again.status == rm.Status.VACUOUS


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    table = score_table(trace())
    (tmp_path / "t.csv").write_text("mine")
    with pytest.raises(rm.InputError, match="left as it is"):
        write_scores(tmp_path / "t.csv", table)
    assert (tmp_path / "t.csv").read_text() == "mine"
    write_scores(tmp_path / "t.csv", table, force=True)
    assert len(read_scores(tmp_path / "t.csv").ids) == 40
    with pytest.raises(rm.InputError, match="must end in"):
        write_scores(tmp_path / "t.xls", table)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(rm.InputError, match=r"remanence\[parquet\]"):
        write_scores(tmp_path / "t.parquet", score_table(trace()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,s\n1,2\n1,3\n", "line 3: ids must be unique; '1' was already in line 2"),
        ("id,s\n1,x\n", "line 2: 's' must be a number"),
        ("id\n1\n", "column of scores"),
        ("name,s\n1,2\n", "no column 'id'"),
        ("id,s,s status\n1,2,sure\n", "line 2: the status must be one of"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(rm.errors.DataError, match=words):
        read_scores(tmp_path / "t.csv")


def test_the_command_writes_and_prints(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scores.csv"
    arguments = ["score", str(folder), "--score", "privacy_loss", "confidence", "--sigma", *map(str, SIGMAS)]
    assert run([*arguments, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "privacy_loss sigma=0.0005" in text
    assert "heuristic" in text
    assert "over checkpoints" in text or "over epochs" in text
    assert "Spearman" in text
    assert out.read_text().startswith("id,privacy_loss sigma=0.01,privacy_loss sigma=0.01 status,")
    before = out.read_bytes()
    assert run([*arguments, "--out", str(out)]) == 2
    assert "left as it is" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert run([*arguments, "--out", str(out), "--force"]) == 0


def test_the_command_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", str(folder), "--alpha", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 40
    assert found["scores"][0]["status"] == "heuristic"
    assert found["scores"][0]["params"]["alpha"] == 4.0
    assert found["spearman"]["matrix"][0][0] == pytest.approx(1)


def test_what_the_command_refuses(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        ([str(tmp_path)], "not a folder made by Remanence"),
        ([str(folder), "--score", "privacy_los"], "Did you mean 'privacy_loss'"),
        ([str(folder), "--sigma", "0"], "`sigma` must be a finite number above 0"),
        ([str(folder), "--alpha", "1"], "alpha"),
    ):
        assert run(["score", *arguments]) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1
    with create(tmp_path / "empty", "training") as draft:
        draft.config({})
    assert run(["score", str(tmp_path / "empty")]) == 2
    assert "has no trace.safetensors" in capsys.readouterr().err
    assert open_folder(tmp_path / "empty").kind == "training"


def test_a_table_of_scores_prints_as_one_line() -> None:
    table = score_table(trace(), ("privacy_loss", "gradient_norm_end"))
    assert repr(table) == "ScoreTable(40 examples: privacy_loss, gradient_norm_end)"
    assert repr(table.column("privacy_loss")) == "Scores('privacy_loss', 40 examples, heuristic)"
