"""Stages that score examples and choose forget sets by their scores."""

from __future__ import annotations

from dataclasses import dataclass

from remanence.forgetting import BAND_NAMES, bands, easiest, hardest, random_set
from remanence.scores import PROXIES, SCORES
from remanence.stages import Read, Stage
from remanence.storage import Draft, read_trace
from remanence.theory.composition import Composition
from remanence.types import ForgetSet, Scores


@dataclass(frozen=True, eq=False, kw_only=True)
class Score(Stage):
    """The privacy loss and the proxies of a training run's examples."""

    kind = "score"

    alpha: float
    sigma: float | None
    trained: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write one column per score, and the status of the privacy losses."""
        trace = read_trace(read(self.trained))
        loss = SCORES["privacy_loss"](trace, alpha=self.alpha, sigma=self.sigma)
        columns = {name: SCORES[name](trace).values for name in PROXIES}
        draft.tensors("scores", {"ids": loss.ids, "privacy_loss": loss.values, **columns})
        draft.document("status", {"status": loss.status.value, "reasons": list(loss.reasons)})


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranks(Stage):
    """The privacy losses of a training run at several noise levels, on both scales."""

    kind = "ranks"

    alpha: float
    sigmas: tuple[float, ...]
    trained: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write one column per scale and noise level."""
        trace = read_trace(read(self.trained))
        columns = {
            f"{scale} {sigma:g}": SCORES["privacy_loss"](
                trace, alpha=self.alpha, sigma=sigma, scale=scale
            ).values
            for scale in ("raw", "mechanism")
            for sigma in self.sigmas
        }
        draft.tensors("losses", columns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Compositions(Stage):
    """The privacy losses of a training run by several rules of composition, at one noise level."""

    kind = "compositions"

    alpha: float
    sigma: float
    rules: tuple[Composition, ...] = ("pathwise", "printed", "accountant")
    trained: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write one column per rule."""
        trace = read_trace(read(self.trained))
        losses = {
            rule: SCORES["privacy_loss"](trace, alpha=self.alpha, sigma=self.sigma, composition=rule)
            for rule in self.rules
        }
        ids = losses[self.rules[0]].ids
        draft.tensors("losses", {"ids": ids, **{rule: scores.values for rule, scores in losses.items()}})


@dataclass(frozen=True, eq=False, kw_only=True)
class Forget(Stage):
    """A forget set, chosen by a score or at random.

    Args:
        way: a band's name, `hardest`, `easiest` or `random`.
        size: number of examples.
        score: the score to choose by; not for `random`.
        seed: random seed of `random`.
        scores: the scores of a training run.
    """

    kind = "forget"

    way: str
    size: int
    score: str = "privacy_loss"
    seed: int | None = None
    scores: Stage

    def compute(self, draft: Draft, read: Read) -> None:
        """Write the ids, and the mean privacy loss of the set."""
        table = read(self.scores).tensors("scores")
        chosen = self._choose(Scores(self.score, table["ids"], table[self.score]))
        losses = {
            example: float(loss) for example, loss in zip(table["ids"], table["privacy_loss"], strict=True)
        }
        draft.document(
            "forget_set",
            {
                "name": chosen.name,
                "provenance": chosen.provenance,
                "mean_privacy_loss": sum(losses[example] for example in chosen.ids) / len(chosen.ids),
                "ids": sorted(chosen.ids.tolist()),
            },
        )

    def _choose(self, scores: Scores) -> ForgetSet:
        if self.way == "random":
            return random_set(scores.ids, self.size, self.seed or 0)
        if self.way == "hardest":
            return hardest(scores, self.size)
        if self.way == "easiest":
            return easiest(scores, self.size)
        return bands(scores, self.size)[BAND_NAMES.index(self.way)]
