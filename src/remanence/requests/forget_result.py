"""The result of carrying out a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remanence.requests.outcome import Outcome
from remanence.requests.remaining_artifacts import RemainingArtifact
from remanence.training import Run


@dataclass(frozen=True, eq=False)
class ForgetResult:
    """A request that was carried out.

    Args:
        run: the new run.
        evidence: the content of its evidence.json.
        already: whether an earlier call had carried it out.
        parts: of several requests that were unlearned together, the evidence of each.
        remaining: what still contains the examples, with paths; the evidence has only keyed hashes of these.
    """

    run: Run
    evidence: Mapping[str, Any] = field(repr=False)
    already: bool = False
    parts: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    remaining: tuple[RemainingArtifact, ...] = field(default=(), repr=False)

    @property
    def outcome(self) -> Outcome:
        """Whether the examples are forgotten."""
        return Outcome(self.evidence["outcome"])
