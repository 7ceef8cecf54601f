"""Stages that score examples and choose forget sets by their scores."""

from __future__ import annotations

from remanence.forgetting import BAND_NAMES, bands, easiest, hardest, random_set
from remanence.scores import PROXIES, SCORES
from remanence.storage import Draft, read_trace
from remanence.study.material import Inputs, Params
from remanence.study.stages import StageKind
from remanence.types import ForgetSet, Scores


def _score(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: a training run with its trace."""
    trace = read_trace(inputs[0])
    loss = SCORES["privacy_loss"](trace, alpha=params["alpha"], sigma=params["sigma"])
    columns = {name: SCORES[name](trace).values for name in PROXIES}
    draft.tensors("scores", {"ids": loss.ids, "privacy_loss": loss.values, **columns})
    draft.document("status", {"status": loss.status.value, "reasons": list(loss.reasons)})


def _forget(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: the scores."""
    table = inputs[0].tensors("scores")
    name = params.get("score") or "privacy_loss"
    scores = Scores(name, table["ids"], table[name])
    chosen = _chosen(params, scores)
    inside = {each: float(loss) for each, loss in zip(table["ids"], table["privacy_loss"], strict=True)}
    losses = [inside[each] for each in chosen.ids]
    draft.document(
        "forget_set",
        {
            "name": chosen.name,
            "provenance": chosen.provenance,
            "mean_privacy_loss": sum(losses) / len(losses),
            "ids": sorted(chosen.ids.tolist()),
        },
    )


def _chosen(params: Params, scores: Scores) -> ForgetSet:
    way, size = params["way"], params["size"]
    if way == "random":
        return random_set(scores.ids, size, params["seed"])
    if way == "hardest":
        return hardest(scores, size)
    if way == "easiest":
        return easiest(scores, size)
    return bands(scores, size)[BAND_NAMES.index(way)]


def _ranks(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: a training run with its trace. The privacy loss at several noise levels, on both scales."""
    trace = read_trace(inputs[0])
    found = {
        f"{scale} {sigma:g}": SCORES["privacy_loss"](
            trace, alpha=params["alpha"], sigma=sigma, scale=scale
        ).values
        for scale in ("raw", "mechanism")
        for sigma in params["sigmas"]
    }
    draft.tensors("losses", found)


SCORE = StageKind("score", 1, _score)
RANKS = StageKind("ranks", 1, _ranks)
FORGET = StageKind("forget", 1, _forget)
