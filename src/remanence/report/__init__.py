"""Figures, tables and pages."""

from remanence.report.barriers import barrier_figure
from remanence.report.drawing import human, look, new_figure, save_png, save_svg, to_svg
from remanence.report.figures import (
    interval_text,
    proxies_figure,
    time_to_unlearn_figure,
    unlearning_curves_figure,
)
from remanence.report.page import image_uri, write_html
from remanence.report.tuning import tuning_figure

__all__ = [
    "barrier_figure",
    "human",
    "image_uri",
    "interval_text",
    "look",
    "new_figure",
    "proxies_figure",
    "save_png",
    "save_svg",
    "time_to_unlearn_figure",
    "to_svg",
    "tuning_figure",
    "unlearning_curves_figure",
    "write_html",
]
