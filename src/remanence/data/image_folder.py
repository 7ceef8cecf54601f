"""A folder of pictures: train/CLASS/*.png and test/CLASS/*.png."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from remanence.data.examples import Examples
from remanence.data.holding_out import held_out, parted
from remanence.data.pixels import Pixels, as_labels
from remanence.errors import DataError

_KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp")


def image_folder(root: Path) -> tuple[Examples, Examples]:
    """Training and test examples in [0, 1]; an id is the picture's path below `root`, as text.

    The folders' names are the classes. Without a folder `test`, about a fifth of the pictures is held out by
    a hash of the id; without `train` as well, the classes are looked for in `root` itself. All pictures have
    one size; they are grey if all of them are grey.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder of pictures.")
    start = root / "train" if (root / "train").is_dir() else root
    names = tuple(sorted(child.name for child in start.iterdir() if child.is_dir() and _pictures(child)))
    if not names:
        raise DataError(f"{start} must hold one folder a class with pictures ({', '.join(_KINDS)}) in it.")
    if start == root or not (root / "test").is_dir():
        both = _examples(root, start, names)
        return parted(both, held_out(both.ids), what=str(root))
    return _examples(root, start, names), _examples(root, root / "test", names)


def _examples(root: Path, part: Path, names: tuple[str, ...]) -> Examples:
    strange = sorted(
        {child.name for child in part.iterdir() if child.is_dir() and _pictures(child)} - set(names)
    )
    if strange:
        raise DataError(f"{part} has the class {strange[0]!r}, which is not among those of the training set.")
    found = [(file, label) for label, name in enumerate(names) for file in _pictures(part / name)]
    if not found:
        raise DataError(f"{part} must hold pictures in the folders {', '.join(names)}; it has none.")
    pixels = _one_shape([_pixels(file) for file, _ in found], [file for file, _ in found])
    ids = np.array([file.relative_to(root).as_posix() for file, _ in found])
    return Examples(ids, Pixels(pixels), as_labels(np.array([label for _, label in found])), names)


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = (file for file in folder.rglob("*") if file.suffix.lower() in _KINDS and file.is_file())
    return sorted(file for file in files if not file.name.startswith("."))


def _pixels(file: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(file) as image:
            grey = image.mode in ("L", "1")
            return np.atleast_3d(np.asarray(image.convert("L" if grey else "RGB")))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} cannot be read as a picture: {error}.") from None


def _one_shape(pictures: Sequence[NDArray[Any]], files: Sequence[Path]) -> NDArray[np.uint8]:
    """All pictures in one array; grey ones among coloured ones become coloured."""
    height, width = pictures[0].shape[:2]
    for picture, file in zip(pictures, files, strict=True):
        if picture.shape[:2] != (height, width):
            found = f"{picture.shape[1]}×{picture.shape[0]}"
            raise DataError(
                f"All pictures must have one size; {files[0]} is {width}×{height} and {file} is {found}. "
                "Resize them first."
            )
    channels = max(picture.shape[2] for picture in pictures)
    return np.stack([np.broadcast_to(picture, (height, width, channels)) for picture in pictures])
