"""A folder of images: train/CLASS/*.png and test/CLASS/*.png."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from remanence.data.examples import Examples, as_labels
from remanence.data.pixels import Pixels
from remanence.data.preprocessing import hashed_test_mask, train_test_split
from remanence.data.read_limits import LIBRARY_LIMITS
from remanence.errors import DataError

_MOST_PIXELS = 50_000_000
"""In one image: more than any data set for training has, and less than Pillow warns about."""
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp")


def read_image_folder(root: Path) -> tuple[Examples, Examples]:
    """Read training and test examples, scaled to [0, 1]; an id is the path of the image below `root`, as text.

    The names of the folders are the classes. If there is no folder `test`, about a fifth of the images are test
    examples, chosen by a hash of the id. If there is no folder `train` either, the classes are the folders in
    `root`. All images must have the same size; they are grayscale if all of them are.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder of images.")
    train = root / "train" if (root / "train").is_dir() else root
    names = _class_folders(train)
    if not names:
        raise DataError(f"{train} must hold one folder of images ({', '.join(_SUFFIXES)}) per class.")
    if train == root or not (root / "test").is_dir():
        examples = _examples(root, train, names)
        return train_test_split(examples, hashed_test_mask(examples.ids), what=str(root))
    return _examples(root, train, names), _examples(root, root / "test", names)


def _class_folders(part: Path) -> tuple[str, ...]:
    return tuple(sorted(child.name for child in part.iterdir() if child.is_dir() and _image_files(child)))


def _examples(root: Path, part: Path, names: tuple[str, ...]) -> Examples:
    unknown = [name for name in _class_folders(part) if name not in names]
    if unknown:
        raise DataError(f"{part} has the class {unknown[0]!r}, which the training set does not have.")
    labeled = [(file, label) for label, name in enumerate(names) for file in _image_files(part / name)]
    if not labeled:
        raise DataError(f"{part} must hold images in the folders {', '.join(names)}; it has none.")
    files, labels = zip(*labeled, strict=True)
    ids = np.array([file.relative_to(root).as_posix() for file in files])
    return Examples(ids, Pixels(_read_images(files)), as_labels(np.array(labels)), names)


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (file for file in folder.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    return sorted(file for file in files if not file.name.startswith("."))


def _read_image(file: Path) -> NDArray[np.uint8]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file)
        with image:
            if image.width * image.height > _MOST_PIXELS:  # known from the header, before anything is decoded
                raise DataError(
                    f"{file} must have at most {_MOST_PIXELS:,} pixels; it is {image.width}×{image.height}."
                )
            is_gray = image.mode in ("L", "1")
            return np.atleast_3d(np.asarray(image.convert("L" if is_gray else "RGB")))
    except DataError:
        raise
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise DataError(f"{file} cannot be read as an image: {error}.") from None


def _read_images(files: Sequence[Path]) -> NDArray[np.uint8]:
    """All images in one array; if any has colors, all have three channels."""
    images: list[NDArray[np.uint8]] = []
    for file in files:
        image = _read_image(file)
        images.append(image)
        height, width = images[0].shape[:2]
        if image.shape[:2] != (height, width):
            raise DataError(
                f"All images must have the same size; {files[0]} is {width}×{height} and {file} is "
                f"{image.shape[1]}×{image.shape[0]}. Resize them first."
            )
        if len(files) * height * width > LIBRARY_LIMITS.decoded_bytes:
            raise DataError(f"{len(files)} images of {width}×{height} pixels are too many to hold in memory.")
    channels = max(image.shape[2] for image in images)
    return np.stack([np.broadcast_to(image, (height, width, channels)) for image in images])
