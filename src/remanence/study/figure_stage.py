"""The last stage of a study: its figure."""

from __future__ import annotations

from remanence.report.drawing import save_figure
from remanence.report.latex import to_latex
from remanence.storage import Draft
from remanence.study.figures import FIGURES
from remanence.study.graph import Graph
from remanence.study.material import Inputs, Params
from remanence.study.results import Parts
from remanence.study.settings import Study, plain
from remanence.study.stages import Stage, StageKind

FORMATS = ("png", "svg", "pdf")


def _figure(draft: Draft, params: Params, inputs: Inputs) -> None:
    """Inputs: every artifact that the figure is made of, in the order of their roles."""
    result = FIGURES[params["figure"]].make(Parts(params["roles"], inputs), params)
    draft.document("results", result.document())
    draft.rows("measurements", result.measurements)
    for name, figure in result.figures.items():
        for kind in FORMATS:
            save_figure(figure, draft.file(f"figures/{name}.{kind}"))
    for title, table in result.tables.items():
        name = title.lower().replace(" ", "-")
        draft.file(f"tables/{name}.tex").write_text(to_latex(table.header, table.rows))


FIGURE = StageKind("figure", 2, _figure)


def figure_stage(study: Study) -> Stage:
    """The stage that a study ends in; everything else is what it needs."""
    kind = FIGURES[study.figure]
    wanted = kind.wanted(Graph(study))
    params = {
        "figure": study.figure,
        "figure_version": kind.version,
        "claim": study.claim,
        "audit": {key: plain(study.audit)[key] for key in ("metrics", "tolerance", "stay", "subsets")},
        "score": plain(study.score),
        "data": {"source": study.data.source, "train": study.data.train, "test": study.data.test},
        "roles": [role for role, _ in wanted],
    }
    return Stage(FIGURE, params, tuple(stage for _, stage in wanted), cost=1.0, title=study.name)
