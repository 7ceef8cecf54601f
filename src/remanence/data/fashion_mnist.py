"""Fashion-MNIST in the official idx layout."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remanence.data.examples import Examples, as_labels
from remanence.data.pixels import Pixels
from remanence.data.public_dataset import PublicDataset
from remanence.errors import DataError

FASHION_MNIST = PublicDataset(
    name="fashion-mnist",
    about="Fashion-MNIST: 60,000 + 10,000 grayscale images of ten kinds of clothing, 28×28",
    home="https://github.com/zalandoresearch/fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    checksums={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)
_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def fashion_mnist(root: Path) -> tuple[Examples, Examples]:
    """Read training and test examples; an id is the position in the official order."""
    contents = FASHION_MNIST.read(root)
    return _part(contents, "train"), _part(contents, "t10k")


def read_idx(content: bytes, *, what: str) -> NDArray[np.uint8]:
    """Read an array of bytes from an idx file, gzipped or not.

    Its content: two zero bytes, 8, the number of axes, the size of each axis, the values.
    """
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{what} is a damaged gzip file ({error}); download it again.") from None
    if content[:3] != b"\0\0\x08" or len(content) < 4 or len(content) < 4 + 4 * content[3]:
        raise DataError(f"{what} is not an idx file of bytes.")
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    body = content[4 + 4 * content[3] :]
    if len(body) != math.prod(shape):
        raise DataError(
            f"{what} is damaged: its header announces {math.prod(shape)} bytes, it holds {len(body)}."
        )
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _part(contents: dict[str, bytes], part: str) -> Examples:
    names = [f"{part}-images-idx3-ubyte.gz", f"{part}-labels-idx1-ubyte.gz"]
    images, labels = (read_idx(contents[name], what=name) for name in names)
    if images.ndim != 3 or labels.ndim != 1:
        raise DataError(
            f"{names[0]} must have three axes and {names[1]} one; got {images.ndim}, {labels.ndim}."
        )
    return Examples(np.arange(len(labels)), Pixels(images[..., None]), as_labels(labels), _NAMES)
