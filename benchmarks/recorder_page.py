"""The section of docs/results/checkpoints.md about recording within a budget, from benchmarks/results/recorder.json.

python benchmarks/recorder_page.py
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "benchmarks/results/recorder.json", ROOT / "docs/results/checkpoints.md"
BEGIN, END = "<!-- recorder: begin -->\n", "<!-- recorder: end -->\n"
WAYS = {"passes": "passes", "shared": "in flight, shared", "left alone": "in flight, left alone"}


def write_page(results: dict[str, Any]) -> None:
    """Replace the section between the two marks."""
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    sections = (agreement_table, counts_table, halves_table, costs_table, real_table)
    parts = [section(results) for section in sections]
    PAGE.write_text(before + BEGIN + "\n" + "\n\n".join(parts) + "\n\n" + END + after)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def mean(runs: list[dict[str, Any]], key: str, inner: str | None = None) -> float:
    return statistics.fmean(run[key] if inner is None else run[inner][key] for run in runs)


def agreement_table(results: dict[str, Any]) -> str:
    rows = []
    for case in results["agreement"].values():
        for way, budgets in case["budgets"].items():
            for runs in budgets:
                rows.append(
                    [
                        case["title"],
                        WAYS[way],
                        f"{100 * runs[0]['overhead']:.0f} %",
                        f"{100 * mean(runs, 'spent'):.1f} %",
                        f"{100 * mean(runs, 'measured'):.0f} %",
                        f"{mean(runs, 'spearman'):.3f}",
                        f"{mean(runs, 'hardest_decile'):.2f}",
                        f"{mean(runs, 'spearman', 'held'):.2f}",
                        str(len(runs)),
                    ]
                )
    head = ["network, data", "recorded", "budget", "spent", "norms measured", "Spearman", "hardest decile"]
    halves = "; ".join(
        f"{case['title']}, {way}: {', '.join(f'{value:.2f}' for value in values)}"
        for case in results["agreement"].values()
        for way, values in case["halves"].items()
    )
    examples = next(iter(results["agreement"].values()))["examples"]
    return (
        f"150 epochs of {examples:,} examples; means over the seeds in the last column.\n\n"
        + table([*head, "held constant", "seeds"], rows)
        + "\n\n*Held constant* uses the same measured norms without the errors that fill the gaps."
        + "\n\n![Rank agreement against the overhead: lines with the gaps filled, dotted lines held "
        + "constant](recorder.svg)"
        + f"\n\nOdd and even rows of the trace of every epoch agree with each other by: {halves}."
    )


def counts_table(results: dict[str, Any]) -> str:
    cases = list(results["agreement"].values())
    rows = []
    for k, runs in enumerate(cases[0]["counts"]):
        cells = [
            " / ".join(
                f"{mean(case['counts'][k], 'spearman', way):.2f}"
                for way in ("held", "free errors", "forward passes")
            )
            for case in cases
        ]
        rows.append([str(runs[0]["passes"]), *cells])
    return (
        "**Exact passes at log-spaced epochs**, each cell: held constant / filled from the errors of training / filled "
        "from a forward pass after every epoch (at no cost in this comparison):\n\n"
        + table(["passes", *(case["title"] for case in cases)], rows)
    )


def halves_table(results: dict[str, Any]) -> str:
    rows = []
    for name, counts in results["halves"].items():
        for runs in counts:
            cells = [
                f"{statistics.fmean(values):.3f}"
                + (f" ± {statistics.stdev(values):.3f}" if part == "halves" else "")
                for way in ("held", "free errors")
                for part in ("whole", "halves")
                for values in [[run[part][way] for run in runs]]
            ]
            rows.append([results["agreement"][name]["title"], str(runs[0]["passes"]), *cells])
    head = ["network", "passes", "held constant: whole", "halves", "filled: whole", "halves"]
    return (
        "**Half passes**: for the same cost twice as many passes, each over a random half of the examples, in turns "
        "(first seed; ten partitions, ± is over these):\n\n" + table(head, rows)
    )


def costs_table(results: dict[str, Any]) -> str:
    rows = [
        [
            results["agreement"][name]["title"],
            *(
                f"{cost[way]:.2f}" if way in cost else "–"
                for way in ("exact", "errors", "shared", "left alone")
            ),
        ]
        for name, cost in results["costs"].items()
    ]
    head = ["network", "exact pass", "forward pass", "in flight, shared", "in flight, left alone"]
    return "**Costs**, in epochs of training (processor time, medians, in turns):\n\n" + table(head, rows)


def real_table(results: dict[str, Any]) -> str:
    rows = [
        [
            results["agreement"][name]["title"],
            f"{run.get('examples', 384):,}",
            str(run["epochs"]),
            f"{100 * run['overhead']:.1f} %",
            run["summary"],
        ]
        for name, run in results["real"].items()
    ]
    head = ["network", "examples", "epochs", "overhead", "what the recorder said"]
    return (
        "**In a real loop**, beside the same loop without a recorder, epochs in turns, processor time, budget 5 %, one "
        "run each:\n\n" + table(head, rows)
    )


if __name__ == "__main__":
    write_page(json.loads(RESULTS.read_text()))
