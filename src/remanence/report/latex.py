"""Tables for a paper."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPECIAL = {
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "−": r"$-$",
    "σ": r"$\sigma$",
    "α": r"$\alpha$",
    "ρ": r"$\rho$",
    "ε": r"$\varepsilon$",
}
_RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_LOWERED = str.maketrans(_RAISED, "-0123456789")


def to_latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with booktabs rules, the first column to the left and the others to the right."""
    columns = "l" + "r" * (len(header) - 1)
    lines = [_line(header), r"\midrule", *(_line(row) for row in rows)]
    body = "\n".join(lines)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(_escaped(cell) for cell in cells) + r" \\"


def _escaped(text: str) -> str:
    """A run of raised digits is one exponent; all else goes sign by sign."""
    parts = re.split(f"([{_RAISED}]+)", text)
    return "".join(
        f"$^{{{part.translate(_LOWERED)}}}$"
        if i % 2
        else "".join(_SPECIAL.get(letter, letter) for letter in part)
        for i, part in enumerate(parts)
    )
