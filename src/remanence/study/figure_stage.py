"""The last stage of a study: its figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remanence.report.drawing import save_figure
from remanence.report.latex import to_latex
from remanence.stages import Read, Stage
from remanence.storage import Draft
from remanence.study.figures import FIGURES
from remanence.study.gate import apply_gate, gated_models
from remanence.study.graph import Graph
from remanence.study.results import FigureSettings, Parts
from remanence.study.settings import Study

FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True, eq=False, kw_only=True)
class FigureStage(Stage):
    """A figure, made from artifacts that each play a role."""

    kind = "figure"
    version = 4

    figure: str
    figure_version: int
    settings: FigureSettings
    roles: tuple[Mapping[str, Any], ...]
    parts: tuple[Stage, ...]

    def compute(self, draft: Draft, read: Read) -> None:
        """Write numbers, pictures, tables and verdicts."""
        folders = [read(stage) for stage in self.parts]
        parts = Parts(self.roles, folders)
        result = apply_gate(FIGURES[self.figure].make(parts, self.settings), parts, self.settings)
        draft.document("results", result.document())
        draft.rows("measurements", result.measurements)
        for name, figure in result.figures.items():
            for suffix in FORMATS:
                save_figure(figure, draft.file(f"figures/{name}.{suffix}"))
        for title, table in result.tables.items():
            name = title.lower().replace(" ", "-")
            draft.file(f"tables/{name}.tex").write_text(to_latex(table.header, table.rows))


def figure_stage(study: Study) -> FigureStage:
    """The stage that a study ends in; everything else is its input."""
    kind = FIGURES[study.figure]
    graph = Graph(study)
    wanted = kind.wanted(graph)
    wanted += gated_models(graph, [stage for _, stage in wanted])
    settings = FigureSettings(
        claim=study.claim,
        metrics=study.audit.metrics,
        tolerance=study.audit.tolerance,
        stay=study.audit.stay,
        subsets=study.audit.subsets,
        proxies=study.score.proxies,
        sigmas=study.score.sigmas,
        data=study.task.data,
        gate=study.gate,
        explored=study.explored,
        references=study.unlearn.references,
    )
    return FigureStage(
        figure=study.figure,
        figure_version=kind.version,
        settings=settings,
        roles=tuple(role for role, _ in wanted),
        parts=tuple(stage for _, stage in wanted),
        title=study.name,
    )
