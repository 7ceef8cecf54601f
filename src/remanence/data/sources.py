"""Where public data sets live: officially, and on this machine."""

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

VARIABLE = "REMANENCE_DATA"


def data_folder(data_dir: str | Path | None = None) -> Path:
    """The folder that holds the data sets: the one given, else $REMANENCE_DATA, else a cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "remanence"


@dataclass(frozen=True)
class Source:
    """A public data set in its official layout.

    Args:
        name: as users type it.
        about: one line on what it is.
        home: the official page to get it from.
        folders: where its files may lie below the data folder; the first is where we ask people to put them.
        checksums: the official MD5 of each file.
        archive: the official tar file that holds `folders[0]`, if there is one.
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
        """Each file's content; a checksum other than the official one is said in one warning.

        A file NAME.gz may also lie there unpacked, as NAME.
        """
        if (archive := self._archive(root)) is not None and self._missing(self._folder(root)):
            return self._read_archive(archive)
        folder = self._folder(root)
        if missing := self._missing(folder):
            raise DataError(self._how_to_get(folder, missing))
        contents = {name: _lying_at(folder, name).read_bytes() for name in self.checksums}
        differing = [
            name
            for name, content in contents.items()
            if _lying_at(folder, name).name == name and _md5(content) != self.checksums[name]
        ]
        self._warn_of(differing, folder)
        return contents

    def _folder(self, root: Path) -> Path:
        """The first folder with any of the files; the one we ask for where there is none."""
        places = [root / folder for folder in self.folders] + [root]
        found = (place for place in places if len(self._missing(place)) < len(self.checksums))
        return next(found, places[0])

    def _missing(self, folder: Path) -> list[str]:
        return [name for name in self.checksums if not _lying_at(folder, name).is_file()]

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
            raise DataError(f"{path} cannot be read ({error}); get it again from {self.home}.") from None
        if missing := [name for name in self.checksums if name not in contents]:
            raise DataError(self._how_to_get(path, missing))
        self._warn_of([name for name in contents if _md5(contents[name]) != self.checksums[name]], path)
        return contents

    def _warn_of(self, differing: Sequence[str], place: Path) -> None:
        if differing:
            sentence = (
                f"{self.name} in {place} is not the official copy: {', '.join(differing)} "
                f"{'has' if len(differing) == 1 else 'have'} another MD5. Going on with what is there."
            )
            warnings.warn(sentence, DataWarning, stacklevel=2)

    def _how_to_get(self, place: Path, missing: Sequence[str]) -> str:
        return (
            f"{self.name} needs {', '.join(missing)} in {place}; get the files from {self.home} and put them "
            f"there, or name their folder with `data_dir` or {VARIABLE}."
        )


def _lying_at(folder: Path, name: str) -> Path:
    packed = folder / name
    unpacked = folder / name.removesuffix(".gz")
    return unpacked if not packed.is_file() and unpacked.is_file() else packed


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
