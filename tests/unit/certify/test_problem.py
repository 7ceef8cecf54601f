import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from remanence.certify import certify, load_problem, reference_problem
from remanence.certify.problem import Problem
from remanence.errors import DataError, InputError

X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 1.0], [1.0, 0.0]])


def test_rows_are_scaled_each_by_itself():
    problem = Problem.from_labels("four", X, ["a", "b", "a", "b"])
    assert problem.features[0] == pytest.approx([0.6, 0.8])
    assert problem.features[1] == pytest.approx([0.3, 0.4])
    assert problem.signs[:, 0].tolist() == [-1, 1, -1, 1]
    assert Problem.from_labels("four", X, [0, 1, 2, 1]).signs.shape == (4, 3)


def test_files_and_names_load(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=[0, 1, 0, 1], ids=[5, 6, 7, 8])
    problem = load_problem(str(tmp_path / "a.npz"))
    assert problem.ids.tolist() == [5, 6, 7, 8]
    table = pa.table({"id": ["w", "x", "y", "z"], "f1": X[:, 0], "f2": X[:, 1], "kind": [0, 1, 0, 1]})
    parquet.write_table(table, tmp_path / "a.parquet")
    same = load_problem(str(tmp_path / "a.parquet"), label="kind")
    assert same.features == pytest.approx(problem.features)
    assert same.ids.tolist() == ["w", "x", "y", "z"]
    assert load_problem("digits").signs.shape == (1797, 10)
    assert len(load_problem("reference")) == 10_000


def test_public_classes_are_checked_against_the_labels(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=[0, 1, 0, 1])
    three = load_problem(str(tmp_path / "a.npz"), classes=["0", "1", "2"])
    assert three.signs.shape == (4, 3)
    assert three.public_classes
    assert not load_problem(str(tmp_path / "a.npz")).public_classes
    with pytest.raises(DataError, match="every label must be one of `classes`; 1 is not"):
        load_problem(str(tmp_path / "a.npz"), classes=["0", "2"])
    with pytest.raises(DataError, match="`classes` must be like the labels"):
        load_problem(str(tmp_path / "a.npz"), classes=["zero", "one"])
    with pytest.raises(DataError, match="`classes` is for files"):
        load_problem("digits", classes=["0"])
    words = Problem.from_labels("words", X, ["a", "b", "a", "b"], classes=["a", "b", "long name"])
    assert words.signs.shape == (4, 3)


def test_reference_is_seeded():
    one, two = reference_problem(50, 4, seed=1), reference_problem(50, 4, seed=1)
    assert np.array_equal(one.features, two.features)
    assert np.linalg.norm(one.features, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.ones((4, 2)), [1, 1, 1, 1], "at least two classes"),
        (np.full((4, 2), np.nan), [0, 1, 0, 1], "row 0, column 0 is nan"),
        (np.ones((4, 2)), [0, 1], "labels"),
        (np.ones(4), [0, 1, 0, 1], r"\[n, d\]"),
    ],
)
def test_bad_features_are_named(features, labels, message):
    with pytest.raises(DataError, match=message):
        Problem.from_labels("bad", features, labels)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no nowhere\.npz"):
        load_problem("nowhere.npz")
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"\.npz or \.parquet"):
        load_problem(str(tmp_path / "a.csv"))
    np.savez(tmp_path / "b.npz", z=X)
    with pytest.raises(DataError, match="must hold one of X, x, features; it holds z"):
        load_problem(str(tmp_path / "b.npz"))
    (tmp_path / "c.npz").write_bytes(b"not a zip")
    with pytest.raises(DataError, match=r"c\.npz is damaged or not an \.npz file"):
        load_problem(str(tmp_path / "c.npz"))
    (tmp_path / "d.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="not a Parquet file"):
        load_problem(str(tmp_path / "d.parquet"))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"epsilon": 0.0}, "`epsilon`"),
        ({"delta": 1.0}, "`delta`"),
        ({"sigma": -1.0}, "`sigma`"),
        ({"l2": 0.0}, "`strong_convexity`"),
        ({"learning_rate": 8.0}, "`learning_rate` must be at most"),
        ({"learning_rate": 0.0}, "`learning_rate`"),
        ({"steps": 1}, "`steps`"),
        ({"runs": 0}, "`runs`"),
        ({"failure": 0.0}, "`failure`"),
        ({"attack_models": -1}, "`attack_models`"),
    ],
)
def test_bad_settings_are_named(change, names):
    with pytest.raises(InputError, match=names):
        certify(reference_problem(50, 4), **change)
