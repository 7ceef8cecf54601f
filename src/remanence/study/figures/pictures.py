"""Examples that are easy and hard to forget, to look at."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remanence.report.study_figures import pictures_figure
from remanence.study.figures import proxies
from remanence.study.results import FigureSettings, Parts, Result, Verdict
from remanence.study.significance import threshold_test

_SHOWN = 10
_SHARE = 0.1
_SHARED = 0.5


wanted = proxies.wanted


def make(parts: Parts, settings: FigureSettings) -> Result:
    """The lowest and the highest losses, averaged in rank over the runs."""
    tables = [folder.tensors("scores") for _, folder in parts.all("score")]
    ranks = np.mean([np.argsort(np.argsort(table["privacy_loss"])) for table in tables], axis=0)
    order = np.argsort(ranks, kind="stable")
    train, _ = settings.data.load()
    rows = {"easy to forget": order[:_SHOWN], "hard to forget": order[::-1][:_SHOWN]}
    pictures = {}
    for name, chosen in rows.items():
        shown = train.take(tables[0]["ids"][chosen])
        pictures[name] = [
            (shown.inputs[i].numpy().transpose(1, 2, 0), shown.class_names[int(shown.labels[i])])
            for i in range(len(chosen))
        ]
    return Result(
        numbers={name: tables[0]["ids"][places].tolist() for name, places in rows.items()},
        figures={"pictures": pictures_figure(pictures)},
        verdicts=[_shared(tables)],
        measurements=[
            {"row": name, "id": str(example), "mean_rank": float(ranks[place])}
            for name, chosen in rows.items()
            for example, place in zip(tables[0]["ids"][chosen].tolist(), chosen, strict=True)
        ],
    )


def _shared(tables: list[dict[str, NDArray[Any]]]) -> Verdict:
    """The paper shows pictures only; what can be counted is whether other runs choose the same examples."""
    size = max(1, round(_SHARE * len(tables[0]["ids"])))
    hard = [set(np.argsort(table["privacy_loss"], kind="stable")[-size:].tolist()) for table in tables]
    overlaps = [len(a & b) / size for a, b in combinations(hard, 2)]
    apart = [len(a & b) / size for a, b in zip(hard[::2], hard[1::2], strict=False)]
    return Verdict(
        "Hard examples are hard by their nature: atypical, ambiguous, mislabelled (the paper shows pictures).",
        f"two runs share {100 * float(np.mean(overlaps)):.0f} % of their hardest tenth (chance: {100 * _SHARE:.0f} %)"
        if overlaps
        else "only one run",
        f"counted instead of looked at: the share of their hardest tenth that two training runs have in common; "
        f"agrees when a sign-flip test over pairs of runs, each run in one pair, shows it above {_SHARED:g} "
        "(p < 0.05), disagrees when the test shows it below (p < 0.05); undecided otherwise",
        threshold_test(apart, _SHARED, "share of the hardest tenth in common") if apart else None,
    )
