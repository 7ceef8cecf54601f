"""Small files that decode to gigabytes are refused in one sentence, with little memory."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import remanence as rm
from remanence.data.columns import read_columns
from remanence.data.image_folder import read_image_folder
from remanence.data.read_limits import UPLOAD_LIMITS, ReadLimits
from remanence.errors import DataError
from remanence.forgetting import ids_from_file, read_forget_set

LITTLE = 400 << 20
"""Bytes of address space that a reader may add to what the imports have taken."""
READ = """
import re, resource, sys
from pathlib import Path
import numpy, pyarrow.compute, pyarrow.parquet, PIL.Image
from remanence.data.image_folder import read_image_folder
from remanence.data.read_limits import LIBRARY_LIMITS, UPLOAD_LIMITS
from remanence.errors import DataError
from remanence.forgetting import ids_from_file, read_forget_set
size = int(re.findall(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[0]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]),) * 2)
for line in sys.stdin:
    path, kind = line.rstrip("\\n").split("\\t")
    try:
        if kind == "images":
            read_image_folder(Path(path))
        elif kind == "forget set":
            read_forget_set(Path(path), limits=UPLOAD_LIMITS)
        else:
            ids_from_file(Path(path), numpy.arange(5), limits=UPLOAD_LIMITS)
        print("the file was accepted", flush=True)
    except DataError as error:
        print(repr(str(error)), flush=True)
"""


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    """A process with little memory that reads files, one after the other."""
    pytest.importorskip("pyarrow")
    environment = os.environ | {"PYTHONPATH": str(Path(rm.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", READ, str(LITTLE)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def refusal(reader: subprocess.Popen[str]) -> Callable[..., str]:
    """What a reader says about a file when it has little memory; a traceback ends the process and fails the test."""

    def ask(path: Path, kind: str = "ids") -> str:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(f"{path}\t{kind}\n")
        reader.stdin.flush()
        answer = reader.stdout.readline().strip()
        assert answer.startswith(("'", '"')), answer or "the reader died"
        said = str(ast.literal_eval(answer))
        assert "\n" not in said
        return said

    return ask


def write_rows(path: Path, columns: dict[str, object], **options: object) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), path, compression="zstd", **options)
    assert path.stat().st_size < UPLOAD_LIMITS.file_bytes


def test_parquet_with_too_many_rows(tmp_path: Path, refusal: Callable[..., str]) -> None:
    write_rows(tmp_path / "ids.parquet", {"id": np.zeros(100_000_000, dtype=np.int8)})
    assert "at most 1,000,000 rows; it has 100,000,000" in refusal(tmp_path / "ids.parquet")


def test_parquet_with_a_long_text_in_a_dictionary(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """The metadata say little about it: the text is stored once and decodes to 4 MB × 100,000."""
    arrow = pytest.importorskip("pyarrow")
    text = arrow.DictionaryArray.from_arrays(np.zeros(100_000, dtype=np.int32), ["a" * (4 << 20)])
    write_rows(tmp_path / "ids.parquet", {"id": text})
    assert "at most 1,000 bytes in one entry" in refusal(tmp_path / "ids.parquet")


def test_parquet_with_many_short_texts_that_are_long_together(
    tmp_path: Path, refusal: Callable[..., str]
) -> None:
    arrow = pytest.importorskip("pyarrow")
    text = arrow.DictionaryArray.from_arrays(np.zeros(1_000_000, dtype=np.int32), ["a" * 999])
    write_rows(tmp_path / "ids.parquet", {"id": text})
    assert "bytes once decoded" in refusal(tmp_path / "ids.parquet")


def test_parquet_with_a_large_column_that_is_not_the_ids(tmp_path: Path, refusal: Callable[..., str]) -> None:
    ids = np.arange(900_000, dtype=np.int32)
    columns = {"id": ids} | {f"x{i}": np.zeros(900_000, dtype=np.float64) for i in range(20)}
    write_rows(tmp_path / "ids.parquet", columns, use_dictionary=False)
    assert "bytes once decoded" in refusal(tmp_path / "ids.parquet")


def test_parquet_with_too_many_columns_or_nested_ones(tmp_path: Path, refusal: Callable[..., str]) -> None:
    write_rows(tmp_path / "ids.parquet", {f"x{i}": [1] for i in range(2_000)})
    assert "at most 1,000 columns" in refusal(tmp_path / "ids.parquet")
    write_rows(tmp_path / "ids.parquet", {"id": [[1] * 1_000_000] * 5})
    assert "a number or a text" in refusal(tmp_path / "ids.parquet")


def test_only_the_named_column_of_a_table_is_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.parquet", {"id": [3, 1], "x": [[1], [2]]})
    (tmp_path / "t.csv").write_text("x,id\na,3\nb,1\n")
    (tmp_path / "t.json").write_text('[{"x": 1, "id": 3}, {"x": 2, "id": 1}]')
    for suffix in ("parquet", "csv", "json"):
        table = read_columns(tmp_path / f"t.{suffix}", only="id")
        assert list(table.values) == ["id"]
        assert table.ids("id").tolist() == [3, 1]
        with pytest.raises(DataError, match=r"no column 'y'; it has .*id"):
            read_columns(tmp_path / f"t.{suffix}", only="y")


@pytest.mark.parametrize("value", [None, "a", 2.0, True])
def test_text_and_numbers_of_parquet_come_as_before(tmp_path: Path, value: object) -> None:
    write_rows(tmp_path / "t.parquet", {"x": [value, None, value]})
    assert read_columns(tmp_path / "t.parquet").values == {"x": [value, None, value]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.csv", "id\n" + "1\n" * 3000, "at most 1,000 rows"),
        ("ids.csv", "id," + ",".join(f"x{i}" for i in range(30)) + "\n", "at most 20 columns"),
        ("ids.csv", "id\n" + "x" * 200_000 + "\n", "at most 100,000 bytes"),
        ("ids.csv", "id\n" + "x" * 99_000 + "\n", "no example has the id"),
        ("ids.json", "[" + "1," * 60_000 + "1]", "at most 100,000 bytes"),
        ("ids.json", "[" * 90_000, "nested too deeply"),
        ("ids.json", "[" + "9" * 5_000 + "]", "too many digits"),
        ("ids.txt", "1\n" * 60_000, "at most 100,000 bytes"),
    ],
)
def test_lists_and_tables_of_text(tmp_path: Path, name: str, content: str, message: str) -> None:
    limits = ReadLimits(100_000, 100_000, rows=1_000, columns=20, entry_bytes=100_000)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        ids_from_file(tmp_path / name, np.arange(3), limits=limits)


def test_a_forget_set_with_one_long_id(tmp_path: Path, refusal: Callable[..., str]) -> None:
    """As a NumPy array every id would be as wide as the longest: 2 MB × 300,000."""
    document = {"remanence": "forget set", "format": 1, "ids": ["a" * (2 << 20), *["b"] * 300_000]}
    (tmp_path / "set.json").write_text(json.dumps(document))
    assert "bytes in one entry" in refusal(tmp_path / "set.json", "forget set")
    document["ids"] = ["a" * 999, *["b"] * 300_000]
    (tmp_path / "set.json").write_text(json.dumps(document))
    assert "bytes once decoded" in refusal(tmp_path / "set.json", "forget set")
    document["ids"] = ["a", "b"]
    (tmp_path / "set.json").write_text(json.dumps(document))
    assert read_forget_set(tmp_path / "set.json", limits=UPLOAD_LIMITS).ids.tolist() == ["a", "b"]


@pytest.mark.parametrize("side", [8_000, 12_000, 30_000])
def test_an_image_with_too_many_pixels(tmp_path: Path, side: int, refusal: Callable[..., str]) -> None:
    """Refused from its header: below Pillow's own limits, where Pillow warns, and where it raises an error."""
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("1", (side, side)).save(tmp_path / "images" / "a" / "bomb.png")
    assert (tmp_path / "images" / "a" / "bomb.png").stat().st_size < 1 << 20
    assert "pixels" in refusal(tmp_path / "images", "images")


def test_an_npz_that_decodes_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from remanence.data import npz

    np.savez_compressed(tmp_path / "x.npz", x_train=np.zeros((1000, 1000)))
    monkeypatch.setattr(npz, "LIBRARY_LIMITS", UPLOAD_LIMITS.__class__(1, 1 << 20, 1, 1, 1))
    with pytest.raises(DataError, match="bytes once decoded"):
        npz.read_npz(tmp_path / "x.npz")


def test_images_that_fit_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(20):
            Image.new("L", (8, 8), i).save(tmp_path / name / f"{i}.png")
    train, _ = read_image_folder(tmp_path)
    assert len(train) > 20
