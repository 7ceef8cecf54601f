"""One's own data: packs, folders of pictures, tables, any torch data set."""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import remanence as rm
from remanence.data import TableSettings, augment, standardize
from remanence.data.pixels import Pixels
from remanence.data.preprocessing import hashed_test_mask

RNG = np.random.default_rng(0)


def write_pack(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "x_train": RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "idx_train": np.array([9, 7, 5, 3, 1, 11]),
        "x_test": RNG.integers(0, 256, (2, 5, 4, 3), dtype=np.uint8),
        "y_test": np.array([0, 2]),
        "idx_test": np.array([4, 2]),
        "class_names": np.array(["a", "b", "c"]),
    }
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **kept)
    return path


def test_a_pack(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "p.npz")
    train, test = rm.load_dataset(path)
    assert train.ids.tolist() == [9, 7, 5, 3, 1, 11]
    assert test.class_names == ("a", "b", "c")
    with np.load(path) as arrays:
        assert torch.equal(
            train.inputs[2, 1], torch.from_numpy(arrays["x_train"][2, :, :, 1] / np.float32(255))
        )


def test_pixels_stay_bytes_until_numbers_are_asked_for(tmp_path: Path) -> None:
    train, _ = rm.load_dataset(write_pack(tmp_path / "p.npz"))
    fewer = train.without(np.array([5, 11]))
    assert (train.input_shape, fewer.input_shape) == ((3, 5, 4), (3, 5, 4))
    one = train.input_at(3)
    assert all(isinstance(each._inputs, Pixels) for each in (train, fewer))
    assert torch.equal(one, train.without(np.array([11])).inputs[3])
    digest = train.digest()
    assert isinstance(train._inputs, Pixels)
    assert torch.equal(one, train.inputs[3])
    assert digest == train.digest()
    assert torch.equal(fewer.inputs, train.inputs[[0, 1, 3, 4]])
    assert torch.equal(fewer.input_at(2), train.input_at(3))
    assert train.without(np.array([5, 11])).digest() == fewer.digest()
    assert isinstance(train._inputs, torch.Tensor)  # and the bytes are let go


@pytest.mark.parametrize("axes", list(itertools.permutations(range(4))))
def test_pixels_in_any_order_of_memory(axes: tuple[int, ...]) -> None:
    levels = RNG.integers(0, 256, (130, 4, 5, 3), dtype=np.uint8)
    stored = np.ascontiguousarray(levels.transpose(axes)).transpose(np.argsort(axes))
    assert np.array_equal(stored, levels)
    pixels = Pixels(stored)
    right = torch.from_numpy(levels.transpose(0, 3, 1, 2) / np.float32(255))
    assert torch.equal(pixels.tensor(), right)
    rows = np.array([129, 0, 64])
    assert torch.equal(pixels.take(rows).tensor(), right[rows])
    assert pixels.shape == right.shape


def test_a_pack_of_features_without_ids_and_names(tmp_path: Path) -> None:
    features = RNG.normal(size=(6, 4))
    path = write_pack(
        tmp_path / "p.npz",
        x_train=features,
        x_test=features[:2],
        idx_train=None,
        idx_test=None,
        class_names=None,
    )
    train, _ = rm.load_dataset(path)
    assert train.ids.tolist() == list(range(6))
    assert train.class_names == ("0", "1", "2")
    assert torch.equal(train.inputs, torch.from_numpy(features).float())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"y_train": np.array([0, 1, 2, 3, 0, 0])}, r"0\.\.2; got 0\.\.3"),
        ({"idx_train": np.array([9, 9, 5, 3, 1, 11])}, "unique"),
        ({"idx_train": np.arange(5)}, "equally many"),
        ({"x_test": np.array([[np.nan], [1.0]])}, "finite; row 0"),
        ({"x_test": np.zeros((2, 3, 4))}, r"must be pixels .* got float64 \(2, 3, 4\)"),
        ({"y_train": np.zeros(6)}, "one-dimensional array of whole numbers"),
        ({"class_names": np.array([{}], dtype=object)}, "not an .npz file of plain arrays"),
    ],
)
def test_bad_packs(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(rm.errors.DataError, match=words):
        rm.load_dataset(write_pack(tmp_path / "p.npz", **changes))


def test_a_damaged_pack(tmp_path: Path) -> None:
    whole = write_pack(tmp_path / "p.npz").read_bytes()
    for content in (b"", b"nonsense", whole[:300], whole[:-100]):
        (tmp_path / "d.npz").write_bytes(content)
        with pytest.raises(rm.errors.DataError, match="damaged or not an"):
            rm.load_dataset(tmp_path / "d.npz")


def test_what_is_neither_a_name_nor_a_path() -> None:
    with pytest.raises(rm.errors.UnknownNameError, match="Did you mean 'digits'"):
        rm.load_dataset("digit")
    with pytest.raises(rm.errors.DataError, match="does not exist"):
        rm.load_dataset("no/such/place")
    with pytest.raises(rm.errors.DataError, match="must be a folder of images or end in"):
        rm.load_dataset(__file__)


def draw(path: Path, size: tuple[int, int] = (4, 3), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0]) + ((3,) if mode == "RGB" else ())
    Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8), mode).save(path)


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_a_folder_of_pictures(tmp_path: Path) -> None:
    for name in ("train/cat/2.png", "train/cat/1.png", "train/ant/x.png", "test/cat/9.png"):
        draw(tmp_path / name)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not a picture")
    train, test = rm.load_dataset(tmp_path)
    assert train.ids.tolist() == ["train/ant/x.png", "train/cat/1.png", "train/cat/2.png"]
    assert train.class_names == ("ant", "cat")
    assert train.labels.tolist() == [0, 1, 1]
    assert (test.ids.tolist(), test.labels.tolist()) == (["test/cat/9.png"], [1])
    pixels = np.array(Image.open(tmp_path / "train/cat/2.png"))
    assert train.inputs.shape == (3, 3, 3, 4)
    assert torch.equal(train.inputs[2, 0] * 255, torch.from_numpy(pixels[..., 0]).float())
    draw(tmp_path / "test" / "dog" / "1.png")
    with pytest.raises(rm.errors.DataError, match="'dog', which the training set does not"):
        rm.load_dataset(tmp_path)


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_a_folder_of_classes_alone_is_split_by_id(tmp_path: Path) -> None:
    for i in range(40):
        draw(tmp_path / f"{'ab'[i % 2]}" / f"{i}.png", mode="L")
    train, test = rm.load_dataset(tmp_path)
    assert len(train) + len(test) == 40
    assert train.inputs.shape[1:] == (1, 3, 4)
    draw(tmp_path / "a" / "more.png", mode="L")
    again, _ = rm.load_dataset(tmp_path)
    assert set(train.ids.tolist()) <= set(again.ids.tolist())


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(rm.errors.DataError, match=r"one folder of images .* per class"):
        rm.load_dataset(tmp_path)
    draw(tmp_path / "train" / "a" / "1.png")
    draw(tmp_path / "train" / "a" / "2.png", size=(5, 3))
    draw(tmp_path / "test" / "a" / "2.png")
    with pytest.raises(rm.errors.DataError, match=r"1\.png is 4×3 and .*2\.png is 5×3"):
        rm.load_dataset(tmp_path)
    whole = (tmp_path / "train" / "a" / "1.png").read_bytes()
    (tmp_path / "train" / "a" / "2.png").write_bytes(whole[:60])
    with pytest.raises(rm.errors.DataError, match=r"2\.png cannot be read as an image"):
        rm.load_dataset(tmp_path)


TABLE = """id,height,weight,user,label,split
a1,1.5,2,ann,yes,train
a2,2.5,3,bob,no,train
a3,3.5,-4e1,eve,yes,test
"""
AS_IT_IS = TableSettings(standardize=False)


def test_a_table_with_everything(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TABLE)
    train, test = rm.load_dataset(tmp_path / "t.csv", table=AS_IT_IS)
    assert (train.ids.tolist(), test.ids.tolist()) == (["a1", "a2"], ["a3"])
    assert train.class_names == ("no", "yes")
    assert train.labels.tolist() == [1, 0]
    assert test.inputs.tolist() == [[3.5, -40.0]]


def test_a_table_with_labels_alone(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 2 + 9}\n" for i in range(50))
    (tmp_path / "t.csv").write_text("x,label\n" + rows)
    train, test = rm.load_dataset(tmp_path / "t.csv")
    assert train.class_names == ("9", "10")
    assert np.array_equal(np.sort(np.concatenate([train.ids, test.ids])), np.arange(50))
    assert np.array_equal(hashed_test_mask(np.arange(50)), np.isin(np.arange(50), test.ids))
    assert 4 <= len(test) <= 18


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "t.csv").write_text(TABLE)
    columns = {
        "id": ["a1", "a2", "a3"],
        "height": [1.5, 2.5, 3.5],
        "weight": [2, 3, -40],
        "label": ["yes", "no", "yes"],
        "split": ["train", "train", "test"],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    for one, other in zip(
        rm.load_dataset(tmp_path / "t.csv"), rm.load_dataset(tmp_path / "t.parquet"), strict=True
    ):
        assert one.digest() == other.digest()
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(rm.errors.DataError, match="not a Parquet file"):
        rm.load_dataset(tmp_path / "d.parquet")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "remanence.data.parquet", raising=False)
    with pytest.raises(rm.errors.DataError, match=r"remanence\[parquet\]"):
        rm.load_dataset(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a2,2.5", "a1,2.5", r"line 3: ids must be unique; 'a1' was already in line 2"),
        ("2.5,3", "tall,3", r"line 3: 'height' must be a number, as in 2 other rows; got 'tall'"),
        ("2.5,3", "inf,3", r"line 3: 'height' must be a finite number; got 'inf'"),
        ("2.5,3", "nan,3", r"line 3: features must not have missing values; .* height \(1\) of 3 rows"),
        ("2.5,3", ",3", r"line 3: features must not have missing values; .* height \(1\) of 3 rows"),
        ("eve,yes", "ann,yes", r"line 4: all rows of one person .*; 'ann' is also in line 2"),
        ("2.5,3", "3", r"line 3: must have 6 fields"),
        ("eve,yes,test", "eve,maybe,test", r"line 4: the class 'maybe' does not occur"),
        ("bob,no,train", "bob,no,valid", r"line 3: 'split' must be train or test"),
        ("bob,no,train", "bob,,train", r"line 3: 'label' must be a word"),
        ("label", "class", r"no column 'label'"),
        ("weight", "height", r"line 1: column names must be unique"),
        ("yes,test", "yes,train", r"0 of 3 are for testing"),
        ("a1,1.5", '"a1,1.5', r"line \d: unexpected end of data"),
    ],
)
def test_bad_tables_name_the_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(TABLE.replace(old, new, 1))
    with pytest.raises(rm.errors.DataError, match=words):
        rm.load_dataset(tmp_path / "t.csv")


def test_tables_that_are_none(tmp_path: Path) -> None:
    for content, words in ((b"", "no rows"), (b"x,label\n", "no rows"), (b"\xff\xfe", "UTF-8")):
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(rm.errors.DataError, match=words):
            rm.load_dataset(tmp_path / "t.csv")


def pairs(n: int = 40) -> TensorDataset:
    return TensorDataset(torch.arange(n).float()[:, None], torch.arange(n) % 3)


def test_with_ids_leaves_the_pairs_alone() -> None:
    named = rm.with_ids(pairs(), [f"p{i}" for i in range(40)])
    assert len(named) == 40
    for _ in range(2):
        for inputs, targets in DataLoader(named, batch_size=16, shuffle=True):
            assert torch.equal(inputs[:, 0].long() % 3, targets)
    examples = named.examples()
    assert examples.ids[7] == "p7"
    assert examples.class_names == ("0", "1", "2")
    assert torch.equal(examples.inputs[:, 0], torch.arange(40.0))


def test_a_subset_keeps_its_ids() -> None:
    part = Subset(Subset(pairs(), [5, 7, 9, 11]), [3, 1])
    assert rm.with_ids(part).ids.tolist() == [11, 7]
    named = rm.with_ids(pairs(), np.arange(100, 140))
    assert rm.with_ids(Subset(named, [2, 0])).ids.tolist() == [102, 100]


@pytest.mark.parametrize(
    ("ids", "words"),
    [([1] * 40, "unique"), (range(39), "as many as the data set's 40"), ([0.5] * 40, "text")],
)
def test_bad_ids(ids: Any, words: str) -> None:
    with pytest.raises(rm.errors.DataError, match=words):
        rm.with_ids(pairs(), ids)


class Reshuffled(Dataset[tuple[torch.Tensor, int]]):
    """Changes its order from epoch to epoch, as some do."""

    def __init__(self, *, noisy: bool = False) -> None:
        self.order, self.noisy = np.arange(40), noisy

    def set_epoch(self, epoch: int) -> None:
        self.order = np.random.default_rng(epoch).permutation(40)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        value = float(self.order[row])
        return torch.tensor([value + (torch.rand(()).item() if self.noisy else 0)]), int(value) % 3


@pytest.mark.parametrize("noisy", [False, True])
def test_an_order_that_changes_is_refused(noisy: bool) -> None:
    inner = Reshuffled(noisy=noisy)
    named = rm.with_ids(inner)
    for epoch in (None, 1):
        if epoch is not None:
            inner.set_epoch(epoch)
            with pytest.raises(rm.errors.DataError, match="must keep its order"):
                named.check()
            with pytest.raises(rm.errors.DataError, match="must keep its order"):
                [named[row] for row in range(len(named))]
        else:
            named.check()
            [named[row] for row in range(len(named))]


def test_random_inputs_may_be_trained_on_but_not_recorded() -> None:
    named = rm.with_ids(Reshuffled(noisy=True))
    assert not named.deterministic
    with pytest.raises(rm.errors.DataError, match="without its random augmentation"):
        named.examples()


def test_a_data_set_that_shrinks() -> None:
    inner = Reshuffled()
    named = rm.with_ids(inner)
    inner.order = inner.order[:30]
    with pytest.raises(rm.errors.DataError, match="keep its 40 examples; it now has 30"):
        named.check()


class Listed(Dataset[Any]):
    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


def test_what_cannot_be_examples() -> None:
    x = torch.zeros(2)
    with pytest.raises(rm.errors.DataError, match="got a Stream"):
        rm.with_ids(Stream())
    with pytest.raises(rm.errors.DataError, match="row 0 is a Tensor"):
        rm.with_ids(Listed(x)).examples()
    with pytest.raises(rm.errors.DataError, match=r"0\.\.1; the label of id 1 is 2"):
        rm.with_ids(Listed((x, 0), (x, 2))).examples(["a", "b"])
    with pytest.raises(rm.errors.DataError, match=r"the label of id 1 is -1"):
        rm.with_ids(Listed((x, 0), (x, -1))).examples()
    with pytest.raises(rm.errors.DataError, match="one shape; that of id 1"):
        rm.with_ids(Listed((x, 0), (torch.zeros(3), 1))).examples()
    with pytest.raises(rm.errors.DataError, match="whole-number classes; that of id 0"):
        rm.with_ids(Listed((x, 0.5))).examples()
    with pytest.raises(rm.errors.DataError, match="id 0 is a str"):
        rm.with_ids(Listed(("picture", 0))).examples()
    with pytest.raises(rm.errors.DataError, match="it is empty"):
        rm.with_ids(Listed()).examples()


def test_standardized_inputs() -> None:
    train, test = rm.load_dataset("digits")
    one, other = standardize(train, test)
    assert torch.allclose(one.inputs.mean(), torch.zeros(()), atol=1e-6)
    assert one.inputs.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    mean, deviation = train.inputs.mean(), train.inputs.std(correction=0)
    assert torch.allclose(other.inputs, (test.inputs - mean) / deviation, atol=1e-6)
    flat = rm.Examples(np.arange(3), torch.tensor([[1.0, 5], [2, 5], [3, 5]]), torch.zeros(3).long(), ("a",))
    assert standardize(flat)[0].inputs[:, 1].tolist() == [0, 0, 0]
    with pytest.raises(rm.errors.DataError, match="can be standardized"):
        standardize(rm.Examples(np.arange(3), torch.arange(3), torch.zeros(3).long(), ("a",)))


PICTURES = torch.arange(8 * 2 * 6 * 5).float().reshape(8, 2, 6, 5) + 1


def test_augmentation_is_of_the_example_not_of_the_batch() -> None:
    ids = np.arange(100, 108)
    whole = augment(PICTURES, ids, epoch=3, seed=1, padding=2)
    some = [6, 1, 4]
    part = augment(PICTURES[some], ids[some], epoch=3, seed=1, padding=2)
    assert torch.equal(part, whole[some])
    assert not torch.equal(whole, augment(PICTURES, ids, epoch=4, seed=1, padding=2))
    assert not torch.equal(whole, augment(PICTURES, ids, epoch=3, seed=2, padding=2))
    named = augment(PICTURES, ids.astype(str), epoch=3, seed=1, padding=2)
    assert torch.equal(
        named[some], augment(PICTURES[some], ids[some].astype(str), epoch=3, seed=1, padding=2)
    )


def test_augmentation_crops_and_flips_and_nothing_else() -> None:
    """Each result is one of the shifts of the padded picture, mirrored or not; all of them occur, evenly."""
    padding, n = 1, 1800
    picture = PICTURES[:1]
    padded = torch.nn.functional.pad(picture, (1, 1, 1, 1))[0]
    views = {}
    for down in range(3):
        for right in range(3):
            view = padded[:, down : down + 6, right : right + 5]
            views[view.numpy().tobytes()] = (down, right, False)
            views[view.flip(2).numpy().tobytes()] = (down, right, True)
    out = augment(picture.expand(n, -1, -1, -1), np.arange(n), epoch=0, seed=0, padding=padding)
    counts = dict.fromkeys(views.values(), 0)
    for each in out:
        counts[views[each.numpy().tobytes()]] += 1
    assert all(50 <= count <= 160 for count in counts.values()), counts


def test_no_augmentation_is_the_identity() -> None:
    assert torch.equal(augment(PICTURES, np.arange(8), epoch=0, seed=0, padding=0, flip=False), PICTURES)
    with pytest.raises(rm.InputError, match="needs images"):
        augment(torch.zeros(3, 2), np.arange(3), epoch=0, seed=0)
    with pytest.raises(rm.InputError, match="negative"):
        augment(PICTURES, np.arange(8), epoch=0, seed=0, padding=-1)
