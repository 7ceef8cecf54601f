"""Study files: where they are, which file they extend, and the settings of their presets."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remanence.errors import InputError, UnknownNameError
from remanence.storage.parsing import parse_toml, read_file
from remanence.study.settings import Study, study_from

CATALOG = Path(__file__).parent / "catalog"
"""The studies that come with the package; `studies/` in the repository is this folder."""
DEFAULT_PRESET = "cpu"
Table = dict[str, Any]


def shipped() -> list[Path]:
    """Every study that comes with the package; a file without a figure is only there to be extended."""
    return [path for path in sorted(CATALOG.glob("*.toml")) if "figure" in _parse(path)]


@dataclass(frozen=True)
class CatalogEntry:
    """A study that comes with the package."""

    name: str
    title: str
    presets: list[str]
    path: str


def list_studies() -> list[CatalogEntry]:
    """The studies that come with the package."""
    return [
        CatalogEntry(path.stem, load_study(str(path)).title, presets_of(path), str(path))
        for path in shipped()
    ]


def find_study(name: str) -> Path:
    """A study's file, by its path or, for those that come with the package, by its name."""
    path = Path(name)
    if path.is_file():
        return path
    known = {study.stem: study for study in shipped()}
    if path.stem in known and path.suffix in ("", ".toml"):
        return known[path.stem]
    if path.suffix == ".toml" and len(path.parts) > 1 and path.parts[0] != "studies":
        raise InputError(f"{path} does not exist; `remanence study list` shows the studies there are.")
    raise UnknownNameError("study", path.stem, known)


def load_study(
    name: str,
    preset: str = DEFAULT_PRESET,
    overrides: Iterable[str] = (),
    *,
    data_dir: str | None = None,
    device: str = "auto",
) -> Study:
    """A study with one of its presets.

    Later settings win: the file that it extends, the file, the preset of each in the same order, the overrides.

    Args:
        name: the path of a file, or the name of a study that comes with the package.
        preset: `smoke`, `cpu`, `paper`, or another table below `[presets]`.
        overrides: changed settings, such as `train.lr=0.1`.
        data_dir: the data folder on this machine.
        device: where to compute on this machine.
    """
    path = find_study(name)
    layers = _layers(path)
    known = {key for layer in layers for key in layer.get("presets", {})}
    if preset not in known:
        raise UnknownNameError(f"preset of {path.stem}", preset, known)
    table: Table = {}
    for layer in layers:
        table = merged(
            table, {key: value for key, value in layer.items() if key not in ("presets", "extends")}
        )
    for layer in layers:
        table = merged(table, layer.get("presets", {}).get(preset, {}))
    for override in overrides:
        table = merged(table, _override(override))
    shipped_here = path.resolve().parent == CATALOG.resolve()
    file = f"studies/{path.name}" if shipped_here else str(path)
    study = study_from(table | {"name": path.stem, "file": file, "preset": preset, "device": device})
    return replace(study, data=replace(study.data, data_dir=data_dir)) if data_dir else study


def study_files(name: str) -> list[Path]:
    """The file of a study and those that it extends."""
    files = [find_study(name)]
    while (extends := _parse(files[-1]).get("extends")) is not None:
        files.append(files[-1].parent / f"{extends}.toml")
    return [file.resolve() for file in files]


def presets_of(path: Path) -> list[str]:
    """The presets that a study has."""
    return sorted({key for layer in _layers(path) for key in layer.get("presets", {})})


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Table:
    """Tables within tables, the second winning; a model of another name brings its own options."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            another = key == "model" and "name" in value and value["name"] != below.get("name")
            result[key] = dict(value) if another else merged(below, value)
        else:
            result[key] = value
    return result


def _layers(path: Path) -> list[Table]:
    """A file and those that it extends, the base first."""
    layers: list[Table] = []
    seen: list[Path] = []
    here: Path | None = path
    while here is not None:
        if here in seen:
            raise InputError(f"{here} extends itself.")
        seen.append(here)
        table = _parse(here)
        layers.insert(0, table)
        extends = table.get("extends")
        if extends is not None and (not isinstance(extends, str) or "\0" in extends):
            raise InputError(f"`extends` in {here} must be the name of a study; got {extends!r:.60}.")
        here = None if extends is None else here.parent / f"{extends}.toml"
    return layers


def _parse(path: Path) -> Table:
    try:
        table = parse_toml(read_file(path), path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    presets = table.get("presets", {})
    if not isinstance(presets, dict) or not all(isinstance(preset, dict) for preset in presets.values()):
        raise InputError(
            f"`presets` in {path} must be a table of tables, [presets.smoke] say; got {presets!r}."
        )
    for part in (table, *presets.values()):
        _write_out(part)
    return table


def _write_out(table: Table) -> None:
    """Write short names in full, file by file and preset by preset, so that later settings win."""
    train = table.get("train")
    if isinstance(train, dict) and "lr" in train:
        train["learning_rate"] = train.pop("lr")


def _override(text: str) -> Table:
    name, sign, value = text.partition("=")
    parts = name.strip().split(".")
    if not sign or not all(parts):
        raise InputError(f"An override must read table.key=value; got {text!r}.")
    result: Any = _value(value.strip())
    for part in reversed(parts):
        result = {part: result}
    table: Table = result
    _write_out(table)
    return table


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
