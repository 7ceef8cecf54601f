"""Barriers between many pairs of runs, each computed once: before and after unlearning, and among oracles."""

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
from remanence.training import Run
from remanence.types import ForgetSet

Kind = Literal["pair", "before", "after", "oracles"]
SUBSETS = ("train", "test", "forget", "retain")
_PAIRS = "pairs"


@dataclass(frozen=True)
class Pair:
    """Two runs, and why they are compared."""

    kind: Kind
    a: Run
    b: Run

    @property
    def names(self) -> tuple[str, str]:
        """The folders, for people."""
        return str(self.a.folder.path), str(self.b.folder.path)


@dataclass(frozen=True)
class BarrierSettings:
    """How barriers are measured.

    Args:
        match: hidden units are first matched by their weights, their activations, or not at all.
        on: subsets, of train, test, forget and retain.
        points: places on the even grid.
        rounds: how often the spacing around the maximum is halved.
        examples: take at most so many of each of forget, retain and test, drawn by the seed; all when None.
        seed: of the matching and the draw.
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
                raise InputError(f"A barrier can be taken on {', '.join(SUBSETS)}; got {name!r}.")
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
"""(pairs done, places done of the next pair, places in a pair) -> None."""


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
        reference: the run whose data they are taken on, as that model saw them.
        forget_set: which part of its training data is to be forgotten; needed for the subsets forget and retain.
        settings: how.
        cache: a folder for finished pairs; what is there is not computed again.
        progress: told how far it is.
    """
    data, statistics = _data(reference, forget_set, settings)
    content = _content(data, statistics)
    found = []
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
        found.append(PairBarriers(pair.kind, *pair.names, curves))
    return found


def summary(found: Sequence[PairBarriers]) -> list[dict[str, Any]]:
    """One row a kind and subset: how many pairs, mean, standard deviation, smallest, largest.

    `above_oracles` is the share of (pair, pair of oracles) in which the first one's barrier is the higher: one half
    when the two are distributed alike. Pairs that share an oracle are not independent, so no p-value is given.
    """
    values: dict[tuple[str, str], list[float]] = {}
    for pair in found:
        for subset, barrier in pair.curves.items():
            values.setdefault((pair.kind, subset), []).append(barrier.value)
    rows = []
    for (kind, subset), each in values.items():
        base = values.get(("oracles", subset), [])
        rows.append(
            {
                "kind": kind,
                "subset": subset,
                "pairs": len(each),
                "mean": float(np.mean(each)),
                "sd": float(np.std(each, ddof=1)) if len(each) > 1 else 0.0,
                "smallest": min(each),
                "largest": max(each),
                "above_oracles": _share_above(each, base) if base and kind != "oracles" else None,
            }
        )
    return rows


def _share_above(values: Sequence[float], base: Sequence[float]) -> float:
    a, b = np.array(values)[:, None], np.array(base)[None]
    return float(((a > b) + 0.5 * (a == b)).mean())


def _data(reference: Run, forget_set: ForgetSet | None, settings: BarrierSettings) -> tuple[Data, Examples]:
    """The subsets, and the training data that BatchNorm's statistics are estimated on."""
    if forget_set is None:
        missing = [name for name in settings.on if name in ("forget", "retain")]
        if missing:
            raise InputError(f"A barrier on {missing[0]} needs a forget set (--forget SET).")
        train, test = (_some(each, settings) for each in reference.data())
        parts: Data = {"train": (train,), "test": (test,)}
        return {name: parts[name] for name in settings.on}, train
    split = reference.split(forget_set)
    forget, retain, test = (_some(each, settings) for each in (split.forget, split.retain, split.test))
    parts = {"train": (forget, retain), "test": (test,), "forget": (forget,), "retain": (retain,)}
    return {name: parts[name] for name in settings.on}, retain


def _some(examples: Examples, settings: BarrierSettings) -> Examples:
    if settings.examples is None or len(examples) <= settings.examples:
        return examples
    draw = np.random.default_rng(settings.seed)
    rows = np.sort(draw.choice(len(examples), settings.examples, replace=False))
    return examples.take(examples.ids[rows])


def _content(data: Data, statistics: Examples) -> str:
    digests = {name: [part.digest() for part in parts] for name, parts in data.items()}  # type: ignore[union-attr]
    return json.dumps([digests, statistics.digest()], sort_keys=True)


def _key(pair: Pair, settings: BarrierSettings, content: str) -> str:
    question = [pair.a.folder.digest(), pair.b.folder.digest(), asdict(settings), content]
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:24]


def _write(file: Path, curves: Mapping[str, Barrier]) -> None:
    document = {
        name: {"places": each.places.tolist(), "losses": each.losses.tolist()}
        for name, each in curves.items()
    }
    atomic.write_text(file, json.dumps(document) + "\n")


def _read(file: Path) -> dict[str, Barrier] | None:
    if not file.exists():
        return None
    try:
        document = json.loads(file.read_text())
        return {
            name: Barrier(np.array(each["places"]), np.array(each["losses"]))
            for name, each in document.items()
        }
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{file} is damaged; remove it and run this again.") from None
