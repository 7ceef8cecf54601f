"""Loss barriers between pairs of runs: before and after unlearning, and among oracles; computed once, cached."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from remanence.audit.barrier import POINTS, ROUNDS, Barrier, Data, Match, loss_barriers
from remanence.data import Examples
from remanence.errors import InputError, RunFolderError
from remanence.storage import atomic
from remanence.storage.parsing import parse_json, read_file
from remanence.training import Run
from remanence.types import ForgetSet

Kind = Literal["pair", "before", "after", "oracles"]
SUBSETS = ("train", "test", "forget", "retain")
_PAIRS = "pairs"


@dataclass(frozen=True)
class Pair:
    """Two runs, and the role of the comparison."""

    kind: Kind
    a: Run
    b: Run

    @property
    def names(self) -> tuple[str, str]:
        return str(self.a.folder.path), str(self.b.folder.path)


@dataclass(frozen=True)
class BarrierSettings:
    """Settings of the measurement of barriers.

    Args:
        match: match hidden units by their weights, their activations, or not at all.
        on: subsets: train, test, forget, retain.
        points: positions on the even grid.
        rounds: how often the grid is refined around the maximum.
        examples: maximum number of examples of forget, retain and test data, drawn at random; all when None.
        seed: random seed of the matching and of the draw.
    """

    match: Match = "weights"
    on: tuple[str, ...] = ("train", "test")
    points: int = POINTS
    rounds: int = ROUNDS
    examples: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.on:
            if name not in SUBSETS:
                raise InputError(f"`on` must name subsets among {', '.join(SUBSETS)}; got {name!r}.")
        if self.examples is not None and self.examples < 1:
            raise InputError(f"`examples` must be at least 1; got {self.examples}.")


@dataclass(frozen=True)
class PairBarriers:
    """The barriers between two runs, by subset."""

    kind: Kind
    a: str
    b: str
    curves: Mapping[str, Barrier] = field(default_factory=dict)


Progress = Callable[[int, int, int], None]
"""(pairs done, points done of the next pair, points per pair) -> None."""


def oracle_pairs(before: Sequence[Run], after: Sequence[Run], oracles: Sequence[Run]) -> list[Pair]:
    """Every model with every oracle, before and after unlearning, and every oracle with every other."""
    return [
        *(Pair("before", oracle, run) for run in before for oracle in oracles),
        *(Pair("after", oracle, run) for run in after for oracle in oracles),
        *(Pair("oracles", a, b) for a, b in itertools.combinations(oracles, 2)),
    ]


def barriers_of(
    pairs: Sequence[Pair],
    reference: Run,
    forget_set: ForgetSet | None,
    settings: BarrierSettings,
    *,
    cache: Path | None = None,
    progress: Progress = lambda done, place, places: None,
) -> list[PairBarriers]:
    """The barriers between all pairs.

    Args:
        pairs: of runs of one architecture.
        reference: the run whose data, as that model was trained on them, the losses are computed on.
        forget_set: needed for the subsets forget and retain.
        settings: how barriers are measured.
        cache: a folder for finished pairs, which are not computed again.
        progress: called after every point.
    """
    data, statistics = _data(reference, forget_set, settings)
    content = _content(data, statistics)
    results = []
    for done, pair in enumerate(pairs):
        file = None if cache is None else cache / _PAIRS / f"{_key(pair, settings, content)}.json"
        curves = None if file is None else _read(file)
        if curves is None:
            curves = loss_barriers(
                pair.a.model(),
                pair.b.model(),
                data,
                match=settings.match,
                statistics=statistics,
                points=settings.points,
                rounds=settings.rounds,
                seed=settings.seed,
                progress=partial(progress, done),
            )
            if file is not None:
                _write(file, curves)
        progress(done + 1, 0, 1)
        results.append(PairBarriers(pair.kind, *pair.names, curves))
    return results


def summary(results: Sequence[PairBarriers]) -> list[dict[str, Any]]:
    """One row per kind and subset: number of pairs, mean, standard deviation, smallest, largest.

    `above_oracles` is the share of (pair, pair of oracles) in which the first has the higher barrier: one half when
    both have the same distribution. Pairs that share an oracle are not independent, so no p-value is given.
    """
    values: dict[tuple[str, str], list[float]] = {}
    for pair in results:
        for subset, barrier in pair.curves.items():
            values.setdefault((pair.kind, subset), []).append(barrier.value)
    rows = []
    for (kind, subset), barriers in values.items():
        base = values.get(("oracles", subset), [])
        rows.append(
            {
                "kind": kind,
                "subset": subset,
                "pairs": len(barriers),
                "mean": float(np.mean(barriers)),
                "sd": float(np.std(barriers, ddof=1)) if len(barriers) > 1 else 0.0,
                "smallest": min(barriers),
                "largest": max(barriers),
                "above_oracles": _share_above(barriers, base) if base and kind != "oracles" else None,
            }
        )
    return rows


def _share_above(values: Sequence[float], base: Sequence[float]) -> float:
    a, b = np.array(values)[:, None], np.array(base)[None]
    return float(((a > b) + 0.5 * (a == b)).mean())


def _data(reference: Run, forget_set: ForgetSet | None, settings: BarrierSettings) -> tuple[Data, Examples]:
    """The subsets, and the training data for BatchNorm's statistics."""
    if forget_set is None:
        missing = [name for name in settings.on if name in ("forget", "retain")]
        if missing:
            raise InputError(f"A barrier on {missing[0]} needs a forget set; pass `forget_set`.")
        train, test = (_sampled(part, settings) for part in reference.data())
        parts: Data = {"train": (train,), "test": (test,)}
        return {name: parts[name] for name in settings.on}, train
    split = reference.split(forget_set)
    forget, retain, test = (_sampled(part, settings) for part in (split.forget, split.retain, split.test))
    parts = {"train": (forget, retain), "test": (test,), "forget": (forget,), "retain": (retain,)}
    return {name: parts[name] for name in settings.on}, retain


def _sampled(examples: Examples, settings: BarrierSettings) -> Examples:
    if settings.examples is None or len(examples) <= settings.examples:
        return examples
    rng = np.random.default_rng(settings.seed)
    rows = np.sort(rng.choice(len(examples), settings.examples, replace=False))
    return examples.take(examples.ids[rows])


def _content(data: Data, statistics: Examples) -> str:
    digests = {name: [part.digest() for part in parts] for name, parts in data.items()}  # type: ignore[union-attr]
    return json.dumps([digests, statistics.digest()], sort_keys=True)


def _key(pair: Pair, settings: BarrierSettings, content: str) -> str:
    inputs = [pair.a.folder.digest(), pair.b.folder.digest(), asdict(settings), content]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:24]


def _write(file: Path, curves: Mapping[str, Barrier]) -> None:
    document = {
        name: {"places": barrier.places.tolist(), "losses": barrier.losses.tolist()}
        for name, barrier in curves.items()
    }
    atomic.write_text(file, json.dumps(document) + "\n")


def _read(file: Path) -> dict[str, Barrier] | None:
    if not file.exists():
        return None
    try:
        document = parse_json(read_file(file), file)
        return {
            name: Barrier(np.array(curve["places"]), np.array(curve["losses"]))
            for name, curve in document.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunFolderError(f"{file} is damaged; remove it and run the command again.") from None
