"""The official layouts, written here byte by byte, and what happens to damaged or hostile ones."""

import contextlib
import gzip
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

import remanence as rm
from remanence.data.fashion_mnist import read_idx
from remanence.data.public_dataset import data_folder
from remanence.data.restricted_pickle import get_array, read_pickle

RNG = np.random.default_rng(0)
NAMES = [b"airplane", b"automobile", b"bird", b"cat", b"deer", b"dog", b"frog", b"horse", b"ship", b"truck"]
pytestmark = pytest.mark.filterwarnings("ignore:.*not the official copy")


def write_cifar10(folder: Path, rows: int = 3) -> np.ndarray:
    folder.mkdir(parents=True)
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": NAMES}, protocol=2))
    pixels = RNG.integers(0, 256, (6, rows, 3072), dtype=np.uint8)
    for batch, name in enumerate([*(f"data_batch_{b}" for b in range(1, 6)), "test_batch"]):
        content = {b"data": pixels[batch], b"labels": [int(x) for x in RNG.integers(0, 10, rows)]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return pixels


def write_svhn(folder: Path, labels: list[int]) -> np.ndarray:
    folder.mkdir(parents=True)
    pixels = RNG.integers(0, 256, (32, 32, 3, len(labels)), dtype=np.uint8)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        savemat(folder / name, {"X": pixels, "y": np.array(labels, dtype=np.uint8)[:, None]})
    return pixels


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_fashion(folder: Path, pack: Callable[[bytes], bytes], suffix: str) -> np.ndarray:
    folder.mkdir(parents=True)
    pixels = RNG.integers(0, 256, (4, 28, 28), dtype=np.uint8)
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(pixels)))
        (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(np.arange(4, dtype=np.uint8))))
    return pixels


def test_cifar10_rows_are_three_planes_and_ids_the_official_positions(tmp_path: Path) -> None:
    pixels = write_cifar10(tmp_path / "cifar-10-batches-py")
    train, test = rm.load_dataset("cifar10", tmp_path)
    assert train.ids.tolist() == [10_000 * batch + row for batch in range(5) for row in range(3)]
    assert test.ids.tolist() == [0, 1, 2]
    expected = torch.from_numpy(pixels[1, 2].reshape(3, 32, 32) / np.float32(255))
    assert torch.equal(train.take(np.array([10_002])).inputs[0], expected)
    assert train.class_names[0] == "airplane"


def test_cifar10_is_read_from_its_tar_file_too(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "a" / "cifar-10-batches-py")
    (tmp_path / "b").mkdir()
    with tarfile.open(tmp_path / "b" / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a" / "cifar-10-batches-py", "cifar-10-batches-py")
    unpacked, packed = (rm.load_dataset("cifar10", tmp_path / side)[0] for side in "ab")
    assert packed.digest() == unpacked.digest()
    whole = (tmp_path / "b" / "cifar-10-python.tar.gz").read_bytes()
    (tmp_path / "b" / "cifar-10-python.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(rm.errors.DataError, match="cannot be read"):
        rm.load_dataset("cifar10", tmp_path / "b")


def test_another_checksum_is_one_warning_and_no_stop(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    with pytest.warns(rm.errors.DataWarning, match=r"data_batch_1, .*test_batch.* another MD5") as found:
        rm.load_dataset("cifar10", tmp_path)
    assert len(found) == 1


class Hostile:
    """Runs a command when an ordinary unpickler builds it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    hostile = pickle.dumps({b"data": Hostile(f"touch {tmp_path}/ran")}, protocol=protocol)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(hostile)
    with pytest.raises(
        rm.errors.DataError, match=r"data_batch_3 was refused: it (asks for .*system|uses)"
    ) as refusal:
        rm.load_dataset("cifar10", tmp_path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "ran").exists()
    pickle.loads(hostile)  # noqa: S301 - the file is hostile indeed: an ordinary reader runs the command
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps({b"data": np.zeros((1, 2))})[:-20],
        pickle.dumps({b"data": np.zeros(2, dtype=object)}, protocol=2),
        pickle.dumps({b"data": np.zeros(2, dtype=np.float32)}, protocol=2),
        b"cnumpy\nndarray\n(K\x02tR.",
        b"cnumpy\ndtype\n(tR.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00zlitR.",
        b"(lp0\n.",
        b"\x80\x02}r\xff\xff\xff\x7f.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",
        b"]}b.",
    ],
)
def test_damaged_pickles_are_one_sentence(content: bytes) -> None:
    with pytest.raises(rm.errors.DataError, match=r"^batch ") as refusal:
        get_array(read_pickle(content, what="batch"), "data", what="batch")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["eval", "getattr", "exec", "bytearray"])
def test_no_builtin_can_be_named(name: str) -> None:
    with pytest.raises(rm.errors.DataError, match=f"asks for 'builtins.{name}'"):
        read_pickle(f"cbuiltins\n{name}\n.".encode(), what="batch")


@pytest.mark.parametrize(
    "name", [b"numpy\nndarray", b"numpy\ndtype", b"_codecs\nencode", b"numpy.core.multiarray\n_reconstruct"]
)
@pytest.mark.parametrize("state", [b"}U\x05_callK\x01s", b"N}U\x05_callK\x01s\x86"])
def test_what_stands_for_a_name_cannot_be_altered(name: bytes, state: bytes) -> None:
    """BUILD sets attributes: an ordinary function would keep them for every file read after."""
    with pytest.raises(rm.errors.DataError, match=r"damaged or not a pickle"):
        read_pickle(b"\x80\x02c" + name + b"\n" + state + b"b.", what="batch")


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_damage_is_one_sentence(data: st.DataObject) -> None:
    content = bytearray(pickle.dumps({b"data": np.arange(6, dtype=np.uint8), b"labels": [1, 2]}, protocol=2))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(rm.errors.DataError):  # any other error would be the reader's own fault
        assert isinstance(read_pickle(bytes(content), what="batch"), dict)


def test_a_pickle_as_python_2_wrote_it() -> None:
    """The official batches: str for text and raw bytes alike."""
    raw = bytes(range(6))
    content = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85"
        b"U\x01b\x87R(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x06" + raw + b"tbu."
    )
    found = get_array(read_pickle(content, what="batch"), "data", what="batch")
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_svhn_ten_is_zero(tmp_path: Path) -> None:
    pixels = write_svhn(tmp_path / "svhn", [1, 10, 9])
    train, _ = rm.load_dataset("svhn", tmp_path)
    assert train.labels.tolist() == [1, 0, 9]
    assert train.class_names[0] == "0"
    assert torch.equal(train.inputs[1, 2] * 255, torch.from_numpy(pixels[:, :, 2, 1]).float())


def test_svhn_bad_labels_and_damage(tmp_path: Path) -> None:
    write_svhn(tmp_path / "svhn", [0, 11])
    with pytest.raises(rm.errors.DataError, match=r"labels 1\.\.10"):
        rm.load_dataset("svhn", tmp_path)
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(rm.errors.DataError, match=r"train_32x32\.mat"):
        rm.load_dataset("svhn", tmp_path)


def test_fashion_packed_and_unpacked(tmp_path: Path) -> None:
    pixels = write_fashion(tmp_path / "packed" / "fashion-mnist", gzip.compress, ".gz")
    train, test = rm.load_dataset("fashion-mnist", tmp_path / "packed")
    assert train.inputs.shape == (4, 1, 28, 28)
    assert torch.equal(test.inputs[3, 0] * 255, torch.from_numpy(pixels[3]).float())
    write_fashion(tmp_path / "plain" / "FashionMNIST" / "raw", bytes, "")
    assert len(rm.load_dataset("fashion-mnist", tmp_path / "plain")[0]) == 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (idx(np.zeros((2, 2), np.uint8))[:-1], "announces 4 bytes, it holds 3"),
        (b"\0\0\x0d\x01" + bytes(8), "not an idx file"),
        (b"\0\0\x08\xff", "not an idx file"),
        (b"", "not an idx file"),
        (gzip.compress(idx(np.zeros(9, np.uint8)), mtime=0)[:-9], "damaged gzip"),
    ],
    ids=["cut short", "wrong type", "too many axes", "empty", "cut gzip"],
)
def test_damaged_idx_files(content: bytes, words: str) -> None:
    with pytest.raises(rm.errors.DataError, match=words):
        read_idx(content, what="file")


def test_missing_data_say_where_to_get_them_and_where_to_put_them(tmp_path: Path) -> None:
    for name, home in (("cifar10", "kriz/cifar"), ("svhn", "housenumbers"), ("fashion-mnist", "zalando")):
        with pytest.raises(rm.errors.DataError, match=home) as refusal:
            rm.load_dataset(name, tmp_path)
        assert str(tmp_path) in str(refusal.value)
        assert "`data_dir` or REMANENCE_DATA" in str(refusal.value)


def test_only_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    write_fashion(tmp_path / "fashion-mnist", gzip.compress, ".gz")
    (tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(rm.errors.DataError, match=r"needs train-images-idx3-ubyte\.gz in"):
        rm.load_dataset("fashion-mnist", tmp_path)


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REMANENCE_DATA", "/from/variable")
    assert data_folder("/given") == Path("/given")
    assert data_folder() == Path("/from/variable")
    monkeypatch.delenv("REMANENCE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "remanence"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "remanence"


def test_cifar10_of_the_wrong_shape(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    wrong = {b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]}
    (folder / "test_batch").write_bytes(pickle.dumps(wrong, protocol=2))
    with pytest.raises(rm.errors.DataError, match="rows of 3072 bytes"):
        rm.load_dataset("cifar10", tmp_path)
    wrong = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 10]}
    (folder / "test_batch").write_bytes(pickle.dumps(wrong, protocol=2))
    with pytest.raises(rm.errors.DataError, match=r"0\.\.9; got 0\.\.10"):
        rm.load_dataset("cifar10", tmp_path)


SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.data
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data are not in ../shared/data")
def test_official_layouts_agree_with_the_packs() -> None:
    """Two independent ways to the same pictures: the id in the official layout is the pack's idx."""
    for name, pack in (("cifar10", "cifar10_12k.npz"), ("svhn", "svhn_12k.npz")):
        official, _ = rm.load_dataset(name, SHARED / "official-layout")
        packed, _ = rm.load_dataset(SHARED / pack)
        common = np.intersect1d(official.ids, packed.ids)
        one, other = official.take(common), packed.take(common)
        assert len(common) > 100
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)


@pytest.mark.data
@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data are not in ../shared/data")
def test_the_official_fashion_files_have_the_official_checksum(tmp_path: Path) -> None:
    for file in (SHARED / "official-layout" / "fashion-mnist").iterdir():
        for part in ("train", "t10k"):
            place = tmp_path / "fashion-mnist" / file.name.replace("t10k", part)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(file.read_bytes())
    with pytest.warns(rm.errors.DataWarning, match=r"copy: train-images\S+, train-labels\S+ have another"):
        _, test = rm.load_dataset("fashion-mnist", tmp_path)
    packed = rm.load_dataset(SHARED / "fashion_mnist_12k.npz")[1]
    assert torch.equal(test.take(packed.ids).inputs, packed.inputs)
    assert torch.equal(test.take(packed.ids).labels, packed.labels)
