"""Show from a store's ledger that the criterion of each study was committed before its deciding seeds were run.

Exit code 1 if one was not. Run it in a git checkout: the criterion is the study file, and the files that it extends.
"""

import argparse
import sys
from pathlib import Path

from remanence.stages import Store
from remanence.study.catalog import shipped
from remanence.study.criterion_order import CriterionOrder, criterion_order
from remanence.study.running import plan_studies


def line(order: CriterionOrder) -> str:
    """What is known of one study."""
    if order.started is None:
        return f"{order.study}: no deciding seed has been run"
    word = "before" if order.holds else "NOT BEFORE"
    by = ", ".join(commit[:12] for commit in order.computed_by) or "unknown sources"
    return (
        f"{order.study}: criterion {order.criterion[:12] or 'not committed'} of {order.committed} is {word} the first "
        f"deciding run, {order.started}, by {by}"
    )


def main() -> int:
    """Print one line per study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=[path.stem for path in shipped()])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--preset", default="cpu")
    arguments = parser.parse_args()
    store = Store(arguments.store)
    planned = plan_studies(arguments.studies, arguments.preset, data_dir=arguments.data_dir)
    orders = [criterion_order(study, store) for study in planned]
    sys.stdout.write("\n".join(map(line, orders)) + "\n")
    return int(any(order.started is not None and not order.holds for order in orders))


if __name__ == "__main__":
    sys.exit(main())
