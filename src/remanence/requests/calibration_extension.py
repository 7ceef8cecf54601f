"""Extend a calibration with more models or sets, and put it in the place of the earlier one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

from remanence.errors import InputError, RunFolderError
from remanence.requests.calibration import AUTO, Calibration, CalibrationSettings
from remanence.requests.reference_folds import FEWEST
from remanence.unlearning import full_names

_EXTENDED = ("models", "sets")
_EARLIER = "earlier"
_NEW = "calibration"


def extended(earlier: Calibration, settings: CalibrationSettings, path: Path) -> CalibrationSettings:
    """The settings of a calibration that has more models or sets than an earlier one, and is otherwise made alike.

    Args:
        earlier: the calibration to extend.
        settings: what is asked for.
        path: the run, for messages.
    """
    before, count = earlier.settings, len(earlier.pool.left_out)
    _refuse_other_settings(before, settings, path)
    grown = replace(before, models=max(settings.models, before.models), sets=max(settings.sets, before.sets))
    more = grown.models - count
    if not earlier.inherited and not more and grown.sets == before.sets:
        raise RunFolderError(
            f"{path} is calibrated with {count} models and {before.sets} sets; ask for more `models` or `sets` to "
            "extend this, or delete its folder calibration to begin again. Nothing was changed."
        )
    if not earlier.inherited and 0 < more < FEWEST:
        raise InputError(
            f"`models` must be at least {FEWEST} more than the {count} that {path} has, so that they can share the "
            f"data between them; got {settings.models}."
        )
    return grown


def _refuse_other_settings(before: CalibrationSettings, settings: CalibrationSettings, path: Path) -> None:
    default = CalibrationSettings()
    given = replace(settings, options=full_names(settings.options))
    for field in fields(CalibrationSettings):
        name = field.name
        value, had = getattr(given, name), getattr(before, name)
        if name == "options":
            differs = before.method != AUTO and any(had.get(key) != entry for key, entry in value.items())
        else:
            differs = name not in _EXTENDED and value not in (had, getattr(default, name))
        if differs:
            raise RunFolderError(
                f"{path} is calibrated with `{name}` {had}, and can only be extended with the same; got {value}. To "
                "calibrate it in another way, delete its folder calibration. Nothing was changed."
            )


def replace_folder(folder: Path, work: Path, write: Callable[[Path], None]) -> None:
    """Write a calibration aside, put it in the place of an earlier one, and remove the work folder."""
    write(work / _NEW)
    if folder.exists():
        folder.rename(work / _EARLIER)
    (work / _NEW).rename(folder)
    shutil.rmtree(work)


def put_back(folder: Path, work: Path) -> None:
    """Undo a replacement that was interrupted."""
    shutil.rmtree(work / _NEW, ignore_errors=True)
    if not folder.exists() and (work / _EARLIER).exists():
        (work / _EARLIER).rename(folder)
