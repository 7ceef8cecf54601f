"""A study's page for the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Described(Protocol):
    """What a page must know of a study."""

    @property
    def title(self) -> str:
        """Its heading."""

    @property
    def claim(self) -> str:
        """What the paper says."""

    @property
    def note(self) -> str:
        """What to know about its settings, if anything."""

    @property
    def preset(self) -> str:
        """Which settings were taken."""


class Origin(Protocol):
    """How a result came about."""

    @property
    def command(self) -> str:
        """What was typed."""

    @property
    def stages(self) -> int:
        """How many pieces of work."""

    @property
    def seeds(self) -> int:
        """Training runs."""

    @property
    def core_seconds(self) -> float:
        """Added up over processes."""

    @property
    def wall_seconds(self) -> float:
        """During how long something was computed."""

    @property
    def machines(self) -> Sequence[str]:
        """Where."""

    @property
    def finished(self) -> str:
        """When."""

    @property
    def settings(self) -> str:
        """As TOML."""

    @property
    def version(self) -> str:
        """Of Remanence."""


_MARKS = {"agrees": "**agrees**", "disagrees": "**does not agree**", "undecided": "**undecided**"}


def result_page(
    study: Described, document: Mapping[str, Any], origin: Origin, folder: str, figures: Sequence[str]
) -> str:
    """Heading, claim beside finding, figure, tables, and how to make it again."""
    parts = [
        f"# {study.title}",
        f"The paper: {study.claim}" if not study.claim.startswith("Not in the paper") else study.claim,
        _verdicts(document["verdicts"]),
        *([study.note] if study.note else []),
        *(f"![{study.title}]({folder}/{name}.png)" for name in figures),
        *(
            f"## {title}\n\n{_table(table['header'], table['rows'])}"
            for title, table in document["tables"].items()
        ),
        _origin(study, origin, folder, figures),
    ]
    return "\n\n".join(parts) + "\n"


def overview_row(
    name: str, study: Described, seeds: int, verdicts: Sequence[Mapping[str, str]]
) -> tuple[str, ...]:
    """A study's line in the overview: which claims agree, which do not, which cannot be told."""
    counts = (str(sum(verdict["agreement"] == word for verdict in verdicts)) for word in _MARKS)
    return f"[{study.title}]({name}.md)", f"`{study.preset}`, {_seeds(seeds)}", *counts


def overview_page(rows: Mapping[str, Sequence[str]], before: str = "") -> str:
    """All studies in one table.

    Args:
        rows: by study.
        before: the page as it was, whose lines on other studies stay.
    """
    old = {name: line for line in before.splitlines() if (name := row_name(line)) is not None}
    new = {name: _line(row) for name, row in rows.items()}
    header = ("study", "settings", "claims that agree", "that do not", "undecided")
    table = "\n".join([_line(header), _line(["---"] * len(header)), *(old | new).values()])
    return (
        "\n\n".join(
            [
                "# The paper's figures, made here",
                "Every figure comes from one file in `studies/` and one command, which its page names. Verdicts are "
                "computed from the numbers by the rules on the pages; a claim that does not reproduce at this size is "
                "counted as such.",
                table,
            ]
        )
        + "\n"
    )


def row_name(line: str) -> str | None:
    """Of which study a line of an overview tells."""
    match = re.match(r"\| \[.*?\]\(([^()]+)\.md\) \|", line)
    return match[1] if match else None


def _verdicts(verdicts: Sequence[Mapping[str, str]]) -> str:
    rows = [(verdict["claim"], verdict["saw"], _MARKS[verdict["agreement"]]) for verdict in verdicts]
    rules = list(dict.fromkeys(verdict["rule"] for verdict in verdicts if verdict["rule"]))
    table = _table(("claim", "what we saw", "verdict"), rows)
    listed = "\n".join(f"- {rule}" for rule in rules)
    return f"{table}\n\nA verdict is computed from the numbers. The rule:\n\n{listed}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(_line(row) for row in (header, ["---"] * len(header), *rows))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _origin(study: Described, origin: Origin, folder: str, figures: Sequence[str]) -> str:
    files = ", ".join(
        f"[{name}.{kind}]({folder}/{name}.{kind})" for name in figures for kind in ("svg", "pdf")
    )
    return "\n".join(
        [
            "## How it was made",
            "",
            f"```sh\n{origin.command}\n```",
            "",
            f"Preset `{study.preset}`, {_seeds(origin.seeds)}, {origin.stages} stages (shared with other studies where "
            f"they ask the same), {origin.core_seconds:,.0f} s of work, each stage on one core, done within "
            f"{origin.wall_seconds:,.0f} s; finished {origin.finished}; Remanence {origin.version}; "
            f"{'; '.join(origin.machines)}.",
            "",
            f"Figures: {files}. Numbers: [results.csv]({folder}/results.csv).",
            "",
            "All settings:",
            "",
            f"```toml\n{origin.settings.strip()}\n```",
        ]
    )
