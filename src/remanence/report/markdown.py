"""A study's page for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
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

    @property
    def criterion(self) -> str:
        """How its claims are decided, as it was written beforehand."""


class Order(Protocol):
    """The commit of a criterion beside the first run that decides."""

    @property
    def criterion(self) -> str:
        """The commit of the criterion; empty if it is not known."""

    @property
    def committed(self) -> datetime | None:
        """When it was committed."""

    @property
    def computed_by(self) -> Sequence[str]:
        """The commits that computed the deciding seeds."""

    @property
    def started(self) -> datetime | None:
        """When the first of them began."""

    @property
    def seeds(self) -> Sequence[int]:
        """The deciding seeds that models were trained with."""


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
    def order(self) -> Order:
        """The criterion beside the runs that decide."""

    @property
    def version(self) -> str:
        """Of Remanence."""


MARKS = {"agrees": "**agrees**", "disagrees": "**does not agree**", "undecided": "**undecided**"}


def result_page(
    study: Described, document: Mapping[str, Any], origin: Origin, folder: str, figures: Sequence[str]
) -> str:
    """Heading, claim beside finding, figure, tables, and how to make it again."""
    parts = [
        f"# {study.title}",
        f"The paper: {study.claim}" if not study.claim.startswith("Not in the paper") else study.claim,
        _verdicts(document["verdicts"]),
        *([study.note] if study.note else []),
        *([_criterion(study, origin.order)] if study.criterion else []),
        *(f"![{study.title}]({folder}/{name}.png)" for name in figures),
        *(
            f"## {title}\n\n{markdown_table(table['header'], table['rows'])}"
            for title, table in document["tables"].items()
        ),
        _origin(study, origin, folder, figures),
    ]
    return "\n\n".join(parts) + "\n"


def _criterion(study: Described, order: Order) -> str:
    parts = [f"## Criterion\n\n{study.criterion.strip()}"]
    if order.criterion and order.committed is not None:
        parts.append(f"Committed in `{order.criterion[:12]}`, {order.committed:%Y-%m-%d %H:%M:%S} UTC.")
    if order.started is not None and order.seeds:
        by = ", ".join(f"`{commit[:12]}`" for commit in order.computed_by) or "sources outside git"
        first, last = order.seeds[0], order.seeds[-1]
        which = f"seed {first} was" if first == last else f"seeds {first} to {last} were"
        parts.append(f"The deciding {which} trained from {order.started:%Y-%m-%d %H:%M:%S} UTC on, by {by}.")
    return "\n\n".join(parts)


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (verdict["claim"], verdict["saw"], *claim_cells(verdict), MARKS[verdict["agreement"]])
        for verdict in verdicts
    ]
    rules = list(dict.fromkeys(verdict["rule"] for verdict in verdicts if verdict["rule"]))
    table = markdown_table(("claim", "what we saw", "effect", "p", "verdict"), rows)
    listed = "\n".join(f"- {rule}" for rule in rules)
    never = list(dict.fromkeys(verdict["why_undecided"] for verdict in verdicts if verdict["why_undecided"]))
    said = "".join(f" {sentence}" for sentence in never)
    return (
        f"{table}\n\nA verdict is computed from the numbers; *agrees* and *disagrees* both need p < 0.05 after the "
        f"correction for all claims on this page (Holm), in brackets.{said} The rule:\n\n{listed}"
    )


def claim_cells(verdict: Mapping[str, Any]) -> tuple[str, str]:
    """Effect with its interval, and the p-values for and against a claim."""
    test = verdict["test"]
    if test is None:
        return "none", "none"
    effect = "unknown" if test["effect"] is None else f"{test['effect']:.3g}"
    if test["interval"] is not None:
        effect += " ({:.3g} to {:.3g})".format(*test["interval"])
    for_it, against = (f"{test[name]:.2g} ({test[f'{name}_holm']:.2g})" for name in ("p", "p_against"))
    return f"{test['unit']}: {effect}", f"for {for_it}, against {against}"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; bars in cells are escaped."""
    return "\n".join(_line(row) for row in (header, ["---"] * len(header), *rows))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def seed_count(count: int) -> str:
    """A number of seeds in words."""
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
            f"Preset `{study.preset}`, {seed_count(origin.seeds)}, {origin.stages} stages (shared with other studies "
            f"where they ask the same), {origin.core_seconds:,.0f} s of work, each stage on one core, done within "
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
