"""The result of a figure: numbers, pictures, tables, and a verdict on each of the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from matplotlib.figure import Figure

from remanence.stages import Stage
from remanence.storage import Folder
from remanence.study.settings import GateSection
from remanence.study.significance import Agreement, ClaimTest, decided, holm
from remanence.tasks import DataSource

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
    data: DataSource
    gate: GateSection
    explored: int
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """One of the paper's claims beside our result.

    Args:
        claim: the claim.
        saw: our numbers, with their spread.
        rule: how it is decided whether they support the claim, from the numbers alone.
        test: the test by that rule; None where there is nothing to test.
        withheld: why the numbers decide nothing, whatever the test says; empty if they may decide.
    """

    claim: str
    saw: str
    rule: str
    test: ClaimTest | None = None
    withheld: str = ""

    @property
    def agreement(self) -> Agreement:
        """The verdict of this claim alone; that of a study needs the corrected p-values (`verdict_documents`)."""
        return "undecided" if self.test is None or self.withheld else self.test.agreement

    def document(self, p_holm: float = 1.0, p_against_holm: float = 1.0) -> dict[str, Any]:
        """The verdict as JSON values, decided by p-values that are corrected for all claims of the study."""
        stated = {"claim": self.claim, "saw": self.saw, "rule": self.rule}
        if self.test is None:
            why = self.withheld or "There is nothing to test."
            return stated | {"agreement": "undecided", "test": None, "why_undecided": why}
        corrected = {"p_holm": p_holm, "p_against_holm": p_against_holm}
        return stated | {
            "agreement": "undecided" if self.withheld else decided(p_holm, p_against_holm),
            "test": asdict(self.test) | corrected,
            "why_undecided": self.withheld or self.test.why_undecided,
        }


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
            "verdicts": verdict_documents(self.verdicts),
            "tables": {
                name: {"header": list(table.header), "rows": [list(row) for row in table.rows]}
                for name, table in self.tables.items()
            },
            "numbers": dict(self.numbers),
        }


def verdict_documents(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """All verdicts of a study as JSON values, by p-values that are corrected by Holm's method over its claims."""
    tests = [verdict.test for verdict in verdicts if verdict.test is not None]
    corrected = zip(holm([test.p for test in tests]), holm([test.p_against for test in tests]), strict=True)
    return [verdict.document(*(next(corrected) if verdict.test else ())) for verdict in verdicts]


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
