"""Whether the criterion of a study is older than the artifacts of the seeds that decide it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from remanence.stages import Stage, Store, in_order
from remanence.stages.source_commit import git
from remanence.stages.timings import Timings
from remanence.study.catalog import study_files
from remanence.study.running import Planned
from remanence.study.train_stages import Train


@dataclass(frozen=True)
class CriterionOrder:
    """The commit of a study's criterion beside the first artifact of its deciding seeds.

    Args:
        study: name of the study.
        criterion: the last commit that changed the study file or one that it extends; empty outside a git checkout.
        committed: when that was.
        computed_by: the commits whose sources computed the deciding seeds.
        started: when the first training run of a deciding seed began; None when there is none yet.
        seeds: the deciding seeds that models were trained with; a study may need fewer than its settings allow for.
    """

    study: str
    criterion: str
    committed: datetime | None
    computed_by: tuple[str, ...]
    started: datetime | None
    seeds: tuple[int, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the criterion was committed before the first deciding run began."""
        return self.committed is not None and self.started is not None and self.committed < self.started


def criterion_order(planned: Planned, store: Store) -> CriterionOrder:
    """Compare the commit of a study's criterion with the ledger of a store."""
    study = planned.study
    files = study_files(study.file)
    log = git("log", "-1", "--format=%H %cI", "--", *map(str, files), folder=files[0].parent)
    commit, _, date = log.partition(" ")
    runs = _deciding(in_order([planned.goal]), study.seed_numbers)
    timings = list(Timings(store.root).read(runs).values())
    return CriterionOrder(
        study.name,
        commit,
        datetime.fromisoformat(date).astimezone(UTC) if date else None,
        tuple(sorted({timing.commit for timing in timings if timing.commit})),
        min((timing.started for timing in timings), default=None),
        tuple(sorted({run.seed for run in runs})),
    )


def _deciding(stages: Iterable[Stage], seeds: range) -> list[Train]:
    """The training runs of these seeds, on which everything else of a seed rests."""
    return [stage for stage in stages if isinstance(stage, Train) and stage.seed in seeds]
