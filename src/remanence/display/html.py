"""HTML for notebooks; every text is escaped, since ids and names come from users' files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape


def human(value: float) -> str:
    """Format a number for people: 0.12, 163, 3.7 × 10⁻⁸."""
    if value == 0 or 1e-2 <= abs(value) < 1e3 or not math.isfinite(value):
        return f"{value:.3g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa} × 10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def card(title: str, *parts: str) -> str:
    """A heading followed by parts, which are HTML already."""
    return f'<div class="remanence"><strong>{escape(title)}</strong>{"".join(parts)}</div>'


def facts(rows: Mapping[str, str]) -> str:
    """A table of names and values."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return f"<table><tbody>{body}</tbody></table>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is left-aligned, the others right-aligned."""
    sides = ["left", *["right"] * (len(header) - 1)]
    head = "".join(
        f'<th scope="col" style="text-align:{side}">{escape(title)}</th>'
        for title, side in zip(header, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:{side}">{escape(cell)}</td>'
            for cell, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def picture(uri: str, alt: str) -> str:
    return f'<img src="{escape(uri)}" alt="{escape(alt)}" style="max-width:100%">'


def sentences(texts: Sequence[str]) -> str:
    """One paragraph per sentence."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)
