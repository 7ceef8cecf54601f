"""The page that leads to all results: every claim with its verdict, effect and interval in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remanence.report.markdown import MARKS, markdown_table, seed_count

HEADING = "# The paper's claims, decided here"
FIGURE = "claims.svg"


def claims_page(
    studies: Sequence[Mapping[str, Any]], costs: Sequence[Sequence[str]], others: Mapping[str, str]
) -> str:
    """The table of claims, and what has not been decided yet.

    Args:
        studies: one document per study: name, title, preset, seeds, network and verdicts.
        costs: by study and verdict, what it would cost to decide it, as a sentence.
        others: titles of studies with a page that has no such document, by name.
    """
    verdicts = [verdict for study in studies for verdict in study["verdicts"]]
    parts = [HEADING, _introduction(verdicts)]
    if studies:
        parts.append(f"![Every claim by its corrected p-values, and whether it is decided]({FIGURE})")
        header = ("claim", "verdict", "effect (95 % interval)", "p (Holm)", "seeds", "network", "page")
        rows = [_row(study, verdict) for study in studies for verdict in study["verdicts"]]
        parts.append(markdown_table(header, rows))
    undecided = [
        _reason(study, verdict, cost)
        for study, sentences in zip(studies, costs, strict=True)
        for verdict, cost in zip(study["verdicts"], sentences, strict=True)
    ]
    if any(undecided):
        parts.append(
            "## Why a claim is undecided, and what it would take\n\n"
            + "\n".join(reason for reason in undecided if reason)
        )
    if others:
        listed = "\n".join(f"- [{title}]({name}.md)" for name, title in others.items())
        parts.append(
            "## Not run with these criteria yet\n\nThe pages of these studies were made with earlier settings (three "
            f"seeds, no gate, no criterion written beforehand). Their verdicts do not count here.\n\n{listed}"
        )
    return "\n\n".join(parts) + "\n"


def _introduction(verdicts: Sequence[Mapping[str, Any]]) -> str:
    counts = {word: sum(verdict["agreement"] == word for verdict in verdicts) for word in MARKS}
    decided = dict.fromkeys((verdict["claim"] for verdict in verdicts), False)
    for verdict in verdicts:
        decided[verdict["claim"]] |= verdict["agreement"] != "undecided"
    of_paper = [known for claim, known in decided.items() if not claim.startswith("Not in the paper")]
    return (
        f"{len(decided)} claims were tested, {len(decided) - len(of_paper)} of them not in the paper; of the other "
        f"{len(of_paper)}, {sum(of_paper)} are decided on at least one network. A claim that was tested on two "
        f"networks has two rows. Of the {len(verdicts)} rows, {counts['agrees']} agree with the claim, "
        f"{counts['disagrees']} do not, {counts['undecided']} are undecided. Every study file states its criterion, "
        "gate and settings, and was committed before the seeds that decide were run; its page names both commits. "
        "A verdict needs p < 0.05 after Holm's correction over the claims of its study "
        "([rules and error rates](../theory/verdicts.md)). The networks are small: a claim that does not hold here may "
        "hold at the size of the paper, and the other way round. Training was set up by the gate, unlearning "
        "(schedule, length, learning rates, floor, evaluations) on random forget sets, both on the seeds 0 to 2, "
        "which decide nothing; three of the five bands are unlearned, to save time."
    )


def _row(study: Mapping[str, Any], verdict: Mapping[str, Any]) -> tuple[str, ...]:
    test = verdict["test"]
    effect, p = "none", "none"
    if test is not None:
        effect = "unknown" if test["effect"] is None else f"{test['effect']:.2f}"
        if test["interval"] is not None:
            effect += " ({:.2f} to {:.2f})".format(*test["interval"])
        effect += f" {test['unit']}"
        p = f"for {test['p_holm']:.2g}, against {test['p_against_holm']:.2g}"
    page = f"[{study['name']}]({study['name']}.md)"
    samples = seed_count(study["seeds"])
    return verdict["claim"], MARKS[verdict["agreement"]], effect, p, samples, study["network"], page


def _reason(study: Mapping[str, Any], verdict: Mapping[str, Any], cost: str) -> str:
    if verdict["agreement"] != "undecided":
        return ""
    why = verdict["why_undecided"] or "The seeds do not agree clearly enough: neither p-value is below 0.05."
    return f"- [{study['name']}]({study['name']}.md): {verdict['claim']} {why} {cost}".rstrip()
