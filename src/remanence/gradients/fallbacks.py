"""Parts of a model that take a slower way say so, once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from remanence.gradients.use import Use
from remanence.gradients.watch import Watch


class FallbackWarning(UserWarning):
    """Part of a model takes a slower way; the result is exact all the same."""


def layer_of(use: Use, watch: Watch, names: Mapping[int, str]) -> str:
    """The name of the layer whose parameters a call uses."""
    found = [names[root] for s in use.sources.values() for root in sorted(watch.parents[s])]
    return found[0].rpartition(".")[0] or found[0]


def announce_fallbacks(watch: Watch, names: Mapping[int, str], announced: set[str]) -> None:
    """Say once which layers take the general way, and what that costs."""
    for use in watch.uses:
        if not use.general or not any(use.call.layouts.values()):
            continue
        layer = layer_of(use, watch, names)
        if layer not in announced:
            announced.add(layer)
            size = sum(use.args[role].numel() for role in use.sources)
            func = getattr(use.call.func, "__name__", use.call.func)
            warnings.warn(
                f"Layer `{layer}` ({func}) has no rule of its own: its {size:,} parameters are "
                "differentiated example by example, which is slower but exact.",
                FallbackWarning,
                stacklevel=2,
            )
