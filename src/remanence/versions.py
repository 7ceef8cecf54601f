"""The versions of everything that computed a result."""

from __future__ import annotations

import platform
from importlib.metadata import version

from remanence._version import __version__

_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "cryptography")


def versions() -> dict[str, str]:
    """Versions of Remanence, Python and the packages that a result depends on."""
    packages = {name: version(name) for name in _PACKAGES}
    return {"remanence": __version__, "python": platform.python_version(), **packages}
