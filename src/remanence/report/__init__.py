"""Figures, tables and pages."""

from remanence.report.barriers import barrier_figure, write_barriers
from remanence.report.drawing import human, inline_svg, look, new_figure, save_figure, to_svg
from remanence.report.page import image_uri, render_html, write_html
from remanence.report.study_figures import interval_text, proxies_figure
from remanence.report.tuning import tuning_figure

__all__ = [
    "barrier_figure",
    "human",
    "image_uri",
    "inline_svg",
    "interval_text",
    "look",
    "new_figure",
    "proxies_figure",
    "render_html",
    "save_figure",
    "to_svg",
    "tuning_figure",
    "write_barriers",
    "write_html",
]
