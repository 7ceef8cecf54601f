"""The runs that a dashboard shows, read when first needed, and again when they have changed."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from remanence.data import Examples
from remanence.errors import RemanenceError, RunFolderError
from remanence.requests.continuation import continuation
from remanence.scores import score_table
from remanence.storage import SEAL
from remanence.training import Run, open_run
from remanence.types import Scores, Trace
from remanence.web.example_filter import percentiles
from remanence.web.page_rendering import Figures
from remanence.web.request_jobs import jobs_of_run
from remanence.web.thumbnails import is_picture, thumbnail_png

KEPT = 4
"""Number of runs whose data stay in memory; the least recently viewed leave first."""


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """An opened run with what its pages need; computed when first needed.

    Args:
        run: the run.
        figures: drawn figures.
        ranked: percentiles that were computed already, by score.
    """

    run: Run
    figures: Figures = field(default_factory=Figures)
    ranked: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @cached_property
    def version(self) -> str:
        """Tells this run from any other: part of the addresses of pictures, which browsers keep."""
        return self.run.folder.digest()[:12]

    @cached_property
    def trace(self) -> Trace:
        """What training recorded."""
        return self.run.trace()

    @cached_property
    def scores(self) -> Mapping[str, Scores]:
        """All that the trace allows, in the trace's order."""
        return score_table(self.trace).columns

    @cached_property
    def examples(self) -> Examples:
        """The trace's examples, in its order, as the network saw them."""
        train, _ = self.run.data()
        same = np.array_equal(train.ids, self.trace.ids)
        return train if same else train.take(self.trace.ids)  # a copy of the data, where it must be

    @cached_property
    def summary(self) -> str:
        """The run in one sentence."""
        run = self.run
        settings, unlearning = run.settings, run.unlearning
        text = f"{settings.model_name} on {settings.data_name}, {settings.recipe.epochs} epochs"
        if unlearning:
            text += f"; unlearned by {unlearning['method']}, {len(run.forgotten)} examples forgotten"
        return f"{text}."

    def read(self) -> None:
        """Load the data into memory; errors are reported by the pages that need the data."""
        with contextlib.suppress(RemanenceError, OSError):
            _ = self.examples

    @property
    def is_loaded(self) -> bool:
        """Whether its data or its trace are in memory."""
        return not {"examples", "trace"}.isdisjoint(vars(self)) or "clean" in vars(self.run)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Class numbers; all 0 if the labels are not classes."""
        return self.examples.strata

    @cached_property
    def shows_pictures(self) -> bool:
        """Whether its examples can be drawn."""
        return is_picture(self.examples.input_shape)

    @cached_property
    def thumbnail(self) -> Callable[[int], bytes]:
        """The PNG of an example by its position; the last few thousand are kept, so memory stays flat."""
        examples = self.examples  # not self, which would then hold itself, and its data, after it was let go
        return lru_cache(maxsize=4096)(lambda place: thumbnail_png(examples.input_at(place).numpy()))

    @cached_property
    def places(self) -> Mapping[int | str, int]:
        """Position of every id in the trace."""
        return {example: place for place, example in enumerate(self.trace.ids.tolist())}

    def percentiles(self, score: str) -> NDArray[np.float64]:
        """Percentile of every example by a score; computed once."""
        if score not in self.ranked:
            self.ranked[score] = percentiles(self.scores[score].values)
        return self.ranked[score]

    def check_place(self, place: int) -> None:
        """Refuse a position that no example has."""
        if not 0 <= place < len(self.trace.ids):
            raise RunFolderError("There is no example of this number in the run.")


class RunCatalog:
    """Runs by number, so that no path ever comes from a browser; includes the runs that requests made."""

    def __init__(self, paths: Sequence[Path], *, keep: int = KEPT) -> None:
        self.paths = list(paths)
        self._keep = keep
        self._kept: OrderedDict[int, tuple[int, OpenedRun]] = OrderedDict()
        self._lock = threading.Lock()
        self._problems: dict[Path, str] = {}

    def check_number(self, number: int) -> None:
        """Refuse a number that no run has."""
        if not 0 <= number < len(self.paths):
            self.discover()  # a request may have made it
        if not 0 <= number < len(self.paths):
            raise RunFolderError("There is no run of this number here.")

    def get(self, number: int) -> OpenedRun:
        """A run as it is on disk now; one that went away is refused."""
        self.check_number(number)
        with self._lock:
            current = self._current(number)
            self._kept.move_to_end(number)
            loaded = [
                other for other, (_, opened) in self._kept.items() if opened.is_loaded and other != number
            ]
            for other in loaded[: max(0, len(loaded) - self._keep + 1)]:
                del self._kept[other]
            return current

    def _current(self, number: int) -> OpenedRun:
        path = self.paths[number]
        try:
            changed = (path / SEAL).stat().st_mtime_ns
        except OSError:
            self._kept.pop(number, None)
            raise RunFolderError(f"{path} is no longer there, or not yet finished.") from None
        if number not in self._kept or self._kept[number][0] != changed:
            self._kept[number] = changed, OpenedRun(open_run(path))
        return self._kept[number][1]

    def warm(self) -> None:
        """Read the data and scores of the first run before the first page is opened."""
        with contextlib.suppress(RemanenceError, OSError, IndexError):
            opened = self.get(0)
            reading = threading.Thread(target=opened.read, daemon=True)
            reading.start()
            opened.percentiles(next(iter(opened.scores)))
            reading.join()

    def discover(self) -> None:
        """Add the runs that requests on known runs have made."""
        with self._lock:
            known = {path.resolve() for path in self.paths}
            for path in self.paths:  # grows as runs are added
                for made in self._made_from(path):
                    if made not in known:
                        known.add(made)
                        self.paths.append(_short(made))

    def _made_from(self, path: Path) -> list[Path]:
        """Finished runs that requests made from this one, here or on the command line."""
        self._problems.pop(path, None)
        runs = [job.out for job in jobs_of_run(path)]
        try:
            further = continuation(path)
            runs += [further.folder] if further is not None else []
            return [run.resolve() for run in runs if (run / SEAL).exists()]
        except (RemanenceError, OSError) as error:
            self._problems[path] = _sentence(error)
        return [job.out.resolve() for job in jobs_of_run(path) if (job.out / SEAL).exists()]

    def problem(self, path: Path) -> str:
        """What is wrong with the record of the requests on a run; empty when nothing is."""
        return self._problems.get(path, "")

    def number_of(self, path: Path) -> int | None:
        """The number of a run, where it is here."""
        self.discover()
        wanted = path.resolve()
        return next((i for i, other in enumerate(self.paths) if other.resolve() == wanted), None)

    def all(self) -> list[tuple[int, Path, OpenedRun | str]]:
        """Every run, or why it cannot be shown. None of their data are read for that."""
        self.discover()
        return [(number, path, self._or_why(number)) for number, path in enumerate(self.paths)]

    def _or_why(self, number: int) -> OpenedRun | str:
        with self._lock:
            try:
                return self._current(number)
            except (RemanenceError, OSError) as error:
                return _sentence(error)


def _sentence(error: RemanenceError | OSError) -> str:
    return str(error) if isinstance(error, RemanenceError) else f"It cannot be read: {error.strerror}."


def _short(path: Path) -> Path:
    """Relative to the working directory, where that is possible."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
