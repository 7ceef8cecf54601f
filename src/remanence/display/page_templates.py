"""The templates of pages: everything is escaped, and a missing name is an error."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from remanence.display.html import human


def templates_of(package: str) -> Environment:
    """The templates in a package's folder `templates`; all of them can extend `page.html`."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("remanence.display")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["human"] = human
    return environment
