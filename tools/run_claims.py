"""Run the paper's studies one after the other in one process; start it again at any time, and it goes on.

Stages that the store holds are not computed again, so an interrupted run loses only the stage under way. Every finished
study is logged with its verdicts.
"""

import argparse
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

import torch

from remanence.errors import RemanenceError
from remanence.memory import keep_freed_memory
from remanence.stages import Store, compute_stages
from remanence.stages.this_process import ThisProcess
from remanence.storage.lock import exclusive
from remanence.study.running import Planned, plan_studies, result_document

STUDIES = (
    "proxies",
    "group-loss",
    "curves",
    "easy-and-hard",
    "loss-barriers",
    "time-to-unlearn",
    "l1-sparse",
    "rankings",
    "predictors",
    "methods",
    "hardest",
    "forget-set-sizes",
    "svhn",
    "fashion-mnist",
    "vit-small",
    "sgld",
)
"""Most claims per hour first: a study that shares its base models and oracles with an earlier one is cheap."""


def say(text: str) -> None:
    """One line of the log, with the time."""
    sys.stdout.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")
    sys.stdout.flush()


def run_planned(planned: Planned, store: Store) -> None:
    """Compute what is missing of one study, and log its verdicts."""
    name = planned.study.name
    say(f"{name}: start")
    tally = compute_stages([planned.goal], store, ThisProcess(store.root))
    for failure in tally.failures:
        say(f"{name}: {failure.stage.key} failed: {failure.message} ({failure.log})")
    seconds = sum(tally.seconds.values())
    say(
        f"{name}: {tally.computed} stages computed in {seconds:.0f} s, {tally.reused} reused, {tally.blocked} blocked"
    )
    for verdict in result_document(planned, store).get("verdicts", ()):
        test = verdict["test"] or {}
        say(
            f"{name}: {verdict['agreement']}: {verdict['claim']} effect {test.get('effect')} {test.get('interval')} "
            f"p {test.get('p_holm')} against {test.get('p_against_holm')} {verdict['why_undecided']}"
        )


def main() -> None:
    """Run the studies that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=STUDIES)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--preset", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the command does
    store = Store(arguments.store)
    store.claim()
    with exclusive(store.root / ".lock", f"Another process computes in {store.root}."):
        store.sweep()
        for name in arguments.studies:
            try:
                run_planned(*plan_studies([name], arguments.preset, data_dir=arguments.data_dir), store)
            except RemanenceError:
                say(f"{name}: not computed\n{traceback.format_exc()}")
    say("all studies: end")


if __name__ == "__main__":
    main()
