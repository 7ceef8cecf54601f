"""The result of a figure: numbers, pictures, tables, and a verdict on each of the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from matplotlib.figure import Figure

from remanence.stages import Stage
from remanence.storage import Folder
from remanence.tasks import DataSource

Agreement = Literal["agrees", "disagrees", "undecided"]
Role = Mapping[str, Any]
Wanted = list[tuple[dict[str, Any], Stage]]
"""The stages that a figure needs, each with the role it plays."""


@dataclass(frozen=True)
class FigureSettings:
    """The settings of a study that its figure reads; see the sections of the study file."""

    claim: str
    metrics: tuple[str, ...]
    tolerance: float
    stay: int
    subsets: tuple[str, ...]
    proxies: tuple[str, ...]
    sigmas: tuple[float, ...]
    every: float
    data: DataSource


@dataclass(frozen=True)
class Verdict:
    """One of the paper's claims beside our result.

    Args:
        claim: the claim.
        saw: our numbers, with their spread.
        agreement: whether the numbers support the claim, by `rule`.
        rule: how that was decided, from the numbers alone.
    """

    claim: str
    saw: str
    agreement: Agreement
    rule: str


@dataclass(frozen=True)
class Table:
    """A small table for a page."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Result:
    """Everything that a figure's stage writes.

    Args:
        numbers: what is drawn, as plain values.
        figures: by name.
        verdicts: one per claim.
        tables: by title.
        measurements: tidy rows, one value each.
    """

    numbers: Mapping[str, Any]
    figures: Mapping[str, Figure]
    verdicts: Sequence[Verdict]
    tables: Mapping[str, Table] = field(default_factory=dict)
    measurements: Sequence[Mapping[str, Any]] = ()

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "tables": {
                name: {"header": list(table.header), "rows": [list(row) for row in table.rows]}
                for name, table in self.tables.items()
            },
            "numbers": dict(self.numbers),
        }


class Parts:
    """The artifacts that a figure is made of, found by role."""

    def __init__(self, roles: Sequence[Role], folders: Sequence[Folder]) -> None:
        self._parts = list(zip(roles, folders, strict=True))

    def all(self, role: str, **where: Any) -> Iterator[tuple[Role, Folder]]:
        """The artifacts with a role and these properties."""
        for facts, folder in self._parts:
            if facts["role"] == role and all(facts.get(key) == value for key, value in where.items()):
                yield facts, folder

    def one(self, role: str, **where: Any) -> Folder:
        """The only artifact with a role and these properties."""
        ((_, folder),) = self.all(role, **where)
        return folder

    def values(self, role: str, key: str, **where: Any) -> list[Any]:
        """The distinct values of a property, in order of appearance."""
        return list(dict.fromkeys(facts[key] for facts, _ in self.all(role, **where)))
