"""A public data set in its official files, and the folder that holds them on this machine."""

from __future__ import annotations

import hashlib
import os
import tarfile
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remanence.errors import DataError, DataWarning

DATA_VARIABLE = "REMANENCE_DATA"


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder of the data sets: `data_dir` if given, else $REMANENCE_DATA, else the user's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if os.environ.get(DATA_VARIABLE):
        return Path(os.environ[DATA_VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "remanence"


@dataclass(frozen=True)
class PublicDataset:
    """The official files of a public data set.

    Args:
        name: name of the data set.
        about: description in one line.
        home: official page to download it from.
        folders: possible folders of the files below the data folder; error messages suggest the first.
        checksums: official MD5 of each file.
        archive: official tar file that holds `folders[0]`, if there is one.
    """

    name: str
    about: str
    home: str
    folders: tuple[str, ...]
    checksums: Mapping[str, str]
    archive: str | None = None

    def present(self, root: Path) -> bool:
        """Whether every file can be read below this data folder."""
        return not self._missing(self._folder(root)) or self._archive(root) is not None

    def read(self, root: Path) -> dict[str, bytes]:
        """The content of each file; warns if a checksum is not the official one.

        A file NAME.gz may also be present unpacked, as NAME.
        """
        folder = self._folder(root)
        missing = self._missing(folder)
        if missing and (archive := self._archive(root)) is not None:
            return self._read_archive(archive)
        if missing:
            raise DataError(self._how_to_get(folder, missing))
        paths = {name: _packed_or_unpacked(folder, name) for name in self.checksums}
        contents = {name: path.read_bytes() for name, path in paths.items()}
        self._check({name: contents[name] for name, path in paths.items() if path.name == name}, folder)
        return contents

    def _folder(self, root: Path) -> Path:
        """The first folder with any of the files, or the suggested one if there is none."""
        candidates = [root / folder for folder in self.folders] + [root]
        used = (folder for folder in candidates if len(self._missing(folder)) < len(self.checksums))
        return next(used, candidates[0])

    def _missing(self, folder: Path) -> list[str]:
        return [name for name in self.checksums if not _packed_or_unpacked(folder, name).is_file()]

    def _archive(self, root: Path) -> Path | None:
        path = root / self.archive if self.archive else None
        return path if path is not None and path.is_file() else None

    def _read_archive(self, path: Path) -> dict[str, bytes]:
        contents = {}
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    name = member.name.removeprefix(f"{self.folders[0]}/")
                    if name in self.checksums and (file := archive.extractfile(member)) is not None:
                        contents[name] = file.read()
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be read ({error}); download it again from {self.home}.") from None
        if missing := [name for name in self.checksums if name not in contents]:
            raise DataError(self._how_to_get(path, missing))
        self._check(contents, path)
        return contents

    def _check(self, contents: Mapping[str, bytes], path: Path) -> None:
        """Warn of files whose MD5 is not the official one."""
        differing = [name for name, content in contents.items() if _md5(content) != self.checksums[name]]
        if differing:
            message = (
                f"{self.name} in {path} is not the official copy: {', '.join(differing)} "
                f"{'has' if len(differing) == 1 else 'have'} another MD5. The files are used nevertheless."
            )
            warnings.warn(message, DataWarning, stacklevel=2)

    def _how_to_get(self, path: Path, missing: Sequence[str]) -> str:
        return (
            f"{self.name} needs {', '.join(missing)} in {path}; download the files from {self.home}, or set "
            f"`data_dir` or {DATA_VARIABLE} to the folder of the data sets."
        )


def _packed_or_unpacked(folder: Path, name: str) -> Path:
    packed = folder / name
    unpacked = folder / name.removesuffix(".gz")
    return unpacked if not packed.is_file() and unpacked.is_file() else packed


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
