"""Figures, tables and pages."""

from remanence.report.drawing import human, look, new_figure, save_png, to_svg
from remanence.report.figures import proxies_figure, time_to_unlearn_figure, unlearning_curves_figure
from remanence.report.page import image_uri, write_html

__all__ = [
    "human",
    "image_uri",
    "look",
    "new_figure",
    "proxies_figure",
    "save_png",
    "time_to_unlearn_figure",
    "to_svg",
    "unlearning_curves_figure",
    "write_html",
]
