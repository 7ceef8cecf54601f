"""How pages are filled: everything escaped, a name that is missing is an error."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from remanence.display.tables import human


def templates_of(package: str) -> Environment:
    """The templates that lie in a package's folder `templates`."""
    found = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["human"] = human
    return found
