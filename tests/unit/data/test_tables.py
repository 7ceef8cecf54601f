"""Tables of features: missing values, categories, standardization, persons, and labels that are numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import remanence as rm
from remanence.cli.main import run as command
from remanence.data import TableSettings, describe_dataset, fit_table, read_users
from remanence.losses import Readout, binary_cross_entropy
from remanence.storage.folder import to_toml
from remanence.storage.parsing import parse_toml
from remanence.storage.table_reading import read_record
from remanence.tasks import DataSource

PRICES = TableSettings(label_column="price", user_column="owner", missing="median")
CITIES = ("Oslo", "Bergen", "Tromsø")


def rows(n: int = 200) -> list[dict[str, Any]]:
    """Houses with missing areas and cities; five for each owner."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(n):
        area, rooms = round(float(rng.uniform(30, 200)), 1), int(rng.integers(1, 6))
        made.append(
            {
                "area": None if rng.random() < 0.1 else area,
                "rooms": rooms,
                "city": None if rng.random() < 0.05 else CITIES[int(rng.integers(3))],
                "owner": f"p{i // 5}",
                "price": round(3000 * area + 20_000 * rooms + 0.25, 2),
            }
        )
    return made


def write(path: Path, table: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(list(table)), path)
        return path
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_features_are_those_of_scikit_learn(tmp_path: Path, suffix: str) -> None:
    table = rows()
    train, test = rm.load_dataset(write(tmp_path / f"houses{suffix}", table), table=PRICES)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    peer = ColumnTransformer(
        [
            ("area", numbers, [0]),
            ("area is missing", "passthrough", [1]),
            ("rooms", StandardScaler(), [2]),
            (
                "city",
                OneHotEncoder(sparse_output=False, categories=[sorted(CITIES)], handle_unknown="ignore"),
                [3],
            ),
            ("city is missing", "passthrough", [4]),
        ]
    )
    raw = np.array(
        [
            [
                np.nan if r["area"] is None else r["area"],
                r["area"] is None,
                r["rooms"],
                r["city"] or "?",
                r["city"] is None,
            ]
            for r in table
        ],
        dtype=object,
    )
    fitted = peer.fit(raw[train.ids])
    for part in (train, test):
        expected = torch.from_numpy(fitted.transform(raw[part.ids]).astype(np.float32))
        assert torch.equal(part.inputs, expected)
    prices = np.array([r["price"] for r in table])
    mean, deviation = prices[train.ids].mean(), prices[train.ids].std()
    assert train.labels.dtype == torch.float32
    assert np.allclose(test.labels[:, 0].numpy(), (prices[test.ids] - mean) / deviation, atol=1e-6)


def test_a_label_that_is_a_number(tmp_path: Path) -> None:
    train, test = rm.load_dataset(write(tmp_path / "t.csv", rows()), table=PRICES)
    assert (train.target, train.n_outputs, train.class_names) == ("number", 1, ())
    assert train.labels.shape == (len(train), 1)
    assert train.take(train.ids[:3]).labels.shape == (3, 1)
    assert test.without(test.ids[:2]).target == "number"
    plain = replace(PRICES, standardize=False)
    raw, _ = rm.load_dataset(tmp_path / "t.csv", table=plain)
    assert raw.labels[0, 0] == pytest.approx(rows()[int(raw.ids[0])]["price"])


def test_all_rows_of_one_person_are_on_one_side(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", rows())
    train, test = rm.load_dataset(path, table=PRICES)
    ids, users = read_users(path, PRICES)
    assert len(ids) == len(train) + len(test)
    owner = dict(zip(ids.tolist(), users, strict=True))
    sides = [{owner[i] for i in part.ids.tolist()} for part in (train, test)]
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[1]) >= 2


def test_the_same_features_whatever_happens_to_other_rows(tmp_path: Path) -> None:
    """Fitted features are plain values: they survive a settings file, and the deletion of rows from the table."""
    table = [{"id": f"h{i}", **row} for i, row in enumerate(rows())]
    path = write(tmp_path / "t.csv", table)
    source = DataSource(str(path), table=PRICES).fitted()
    written = parse_toml(to_toml(asdict(source)).encode(), tmp_path / "settings.toml")
    read = read_record(DataSource, written, tmp_path / "settings.toml")
    assert read == source
    train, _ = source.read()
    write(path, table[: len(table) // 2])
    fewer, _ = read.read()
    assert torch.equal(fewer.inputs, train.take(fewer.ids).inputs)
    assert torch.equal(fewer.labels, train.take(fewer.ids).labels)
    refitted, _ = DataSource(str(path), table=PRICES).read()
    assert not torch.equal(refitted.inputs, fewer.inputs)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\nscale = ", "\nscale = 0.0 # ", "scale of column 'area'"),
        ("\nmean = ", "\nmean = nan # ", "must be finite"),
        ("label_scale = ", "label_scale = -1.0 # ", "label_scale"),
        ('"Bergen"', '"Oslo"', "is damaged"),
        ('name = "rooms"', 'name = "area"', "feature columns must differ"),
        ('missing = "median"', 'missing = "mean"', "missing"),
    ],
)
def test_a_damaged_encoding_is_one_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = write(tmp_path / "t.csv", rows())
    text = to_toml(asdict(DataSource(str(path), table=PRICES).fitted()))
    assert old in text
    damaged = parse_toml(text.replace(old, new, 1).encode(), tmp_path / "settings.toml")
    with pytest.raises(rm.errors.RunFolderError, match=words):
        read_record(DataSource, damaged, tmp_path / "settings.toml")


def test_an_unknown_category_is_all_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", rows())
    settings = fit_table(path, PRICES)
    table = rows()
    table[0]["city"] = "Narvik"
    train, test = rm.load_dataset(write(path, table), table=settings)
    part = train if 0 in train.ids else test
    features = describe_dataset(path, table=settings)["features"]
    cities = [i for i, name in enumerate(features) if name.startswith("city = ")]
    assert [features[i] for i in cities] == ["city = Bergen", "city = Oslo", "city = Tromsø"]
    assert part.take(np.array([0])).inputs[0, cities].tolist() == [0, 0, 0]


def test_codes_of_categories_and_columns_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", rows())
    settings = replace(PRICES, category_columns=("rooms",), drop_columns=("area", "city"))
    features = describe_dataset(path, table=settings)["features"]
    assert features == [f"rooms = {number}" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("labels", "kind", "target"),
    [
        (["yes", "no"] * 50, "auto", "class"),
        ([0, 1, 2, 3] * 25, "auto", "class"),
        ([1.0, 2.0] * 50, "auto", "class"),
        (range(100), "auto", "number"),
        ([0.5, 1, 1, 2] * 25, "auto", "number"),
        ([0, 1, 2, 3] * 25, "number", "number"),
        ([*range(40)] * 3, "class", "class"),
        (["12.5", "13"] * 50, "class", "class"),
    ],
)
def test_what_a_label_is(tmp_path: Path, labels: Sequence[Any], kind: Any, target: str) -> None:
    path = write(tmp_path / "t.csv", [{"x": i, "label": label} for i, label in enumerate(labels)])
    train, _ = rm.load_dataset(path, table=TableSettings(label_kind=kind))
    assert train.target == target


def test_whole_numbers_that_may_be_either_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [{"x": i, "label": i % 40} for i in range(400)])
    with pytest.raises(rm.errors.DataError, match=r"40 different whole numbers in 400 rows.*`label_kind`"):
        rm.load_dataset(path)


def change(**values: Any) -> list[dict[str, Any]]:
    """The table with other values in its second row."""
    table = [row | {"area": row["area"] or 50.0, "city": row["city"] or "Oslo"} for row in rows()]
    table[1] |= values
    return table


GIVEN = ("--label-column", "price", "--user-column", "owner")


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (change(), ("--label-column", "cost"), "has no column 'cost'; it has area, rooms, city, owner, price"),
        (change(), (*GIVEN, "--drop-columns", "size"), "has no column 'size'"),
        (change(), (*GIVEN, "--category-columns", "size"), "has no column 'size'"),
        (change(), ("--label-column", "price", "--user-column", "who"), "has no column 'who'"),
        (change(), (*GIVEN, "--drop-columns", "price"), "'price' is --label-column and in --drop-columns"),
        (change(), ("--label-column", "owner", "--user-column", "owner"), "must differ; both are 'owner'"),
        (change(), (*GIVEN, "--drop-columns", "area", "rooms", "city"), "must have feature columns"),
        (change(area=None, city=None), GIVEN, "missing in area (1), city (1) of 200 rows. Fill them with --missing"),
        ([row | {"area": None} for row in change()], (*GIVEN, "--missing", "median"), "; area has none"),
        (change(area="big"), GIVEN, "line 3: 'area' must be a number, as in 199 other rows; got 'big'"),
        (change(area="inf"), GIVEN, "line 3: 'area' must be a finite number; got 'inf'"),
        (change(price="dear"), GIVEN, "line 3: 'price' must be a number, as in 199 other rows; got 'dear'"),
        (change(price=None), GIVEN, "line 3: 'price' must be a number; got ''"),
        (change(owner=None), GIVEN, "line 3: 'owner' must be a word or a whole number"),
        (change(), (*GIVEN, "--label-kind", "class"), "'price' has 199 different values in 200 rows"),
        (
            [row | {"note": f"note {i % 1500}"} for i, row in enumerate(change() * 8)],
            GIVEN,
            "at most 1000 of them; 'note' has",
        ),
    ],
)  # fmt: skip
def test_refusals_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: Any, options: tuple[str, ...], words: str
) -> None:
    path = write(tmp_path / "t.csv", table)
    assert command(["data", "check", str(path), *options]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in " ".join(err.split())


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (("--model", "resnet18"), "'resnet18' must be given images [channels, height, width]"),
        (("--model", "mlp", "--option", "hidden=abc"), "cannot be built with hidden='abc'"),
        (("--model", "mlp", "--option", "hidden=5"), "cannot be built with hidden=5"),
        (("--model", "mlp", "--option", "num_classes=2"), "at least the 3 outputs"),
    ],
)
def test_a_model_that_does_not_fit_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: tuple[str, ...], words: str
) -> None:
    path = write(tmp_path / "t.csv", change())
    given = ("--data", str(path), "--label-column", "city", "--out", str(tmp_path / "run"))
    assert command(["train", *given, *model]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in err


def test_table_options_without_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["data", "check", "digits", *GIVEN]) == 2
    assert "must belong to a .csv or .parquet file" in capsys.readouterr().err


def test_what_examples_say_of_their_labels() -> None:
    inputs, labels = torch.zeros(3, 2), torch.tensor([[1.0, 0], [1, 1], [0, 0]])
    several = rm.Examples(np.arange(3), inputs, labels, readout=Readout(binary_cross_entropy))
    assert (several.target, several.n_outputs, several.has_classes) == ("labels", 2, False)
    assert several.label_texts() == ["1, 0", "1, 1", "0, 0"]
    classes = rm.Examples(np.arange(3), inputs, torch.tensor([0, 1, 0]), ("cat", "dog"))
    assert (classes.target, classes.n_outputs, classes.has_classes) == ("class", 2, True)
    assert classes.label_texts() == ["cat", "dog", "cat"]
    with pytest.raises(rm.errors.DataError, match="finite; that of id 0 is not"):
        rm.Examples(np.arange(3), inputs, labels / 0)
