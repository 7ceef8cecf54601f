"""What a figure comes to: numbers, pictures, tables, and a verdict on each of the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from matplotlib.figure import Figure

from remanence.storage import Folder
from remanence.study.stages import Stage

Agreement = Literal["agrees", "disagrees", "undecided"]
Role = Mapping[str, Any]
Wanted = list[tuple[dict[str, Any], Stage]]
"""What a figure needs: each stage with the role it plays."""


@dataclass(frozen=True)
class Verdict:
    """One of the paper's claims beside what we saw.

    Args:
        claim: what the paper says.
        saw: what our numbers say, with their spread.
        agreement: whether they say the same, by the rule in `rule`.
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
    """All that a figure's stage writes.

    Args:
        numbers: everything that is drawn, as plain values.
        figures: by name.
        verdicts: on each claim.
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
            "verdicts": [asdict(each) for each in self.verdicts],
            "tables": {
                name: {"header": list(each.header), "rows": [list(row) for row in each.rows]}
                for name, each in self.tables.items()
            },
            "numbers": dict(self.numbers),
        }


class Parts:
    """The artifacts that a figure is made of, found by the roles they play."""

    def __init__(self, roles: Sequence[Role], folders: Sequence[Folder]) -> None:
        self._parts = list(zip(roles, folders, strict=True))

    def all(self, role: str, **where: Any) -> Iterator[tuple[Role, Folder]]:
        """Those that play a role, and of them those with these properties."""
        for facts, folder in self._parts:
            if facts["role"] == role and all(facts.get(key) == value for key, value in where.items()):
                yield facts, folder

    def one(self, role: str, **where: Any) -> Folder:
        """The only one with these properties."""
        (found,) = self.all(role, **where)
        return found[1]

    def values(self, role: str, key: str, **where: Any) -> list[Any]:
        """The values of a property, each once, in the order in which they come."""
        return list(dict.fromkeys(facts[key] for facts, _ in self.all(role, **where)))
