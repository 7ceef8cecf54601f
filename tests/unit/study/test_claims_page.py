"""The page that leads: every claim of every study in one table."""

import json
from pathlib import Path
from typing import Any

from remanence.report.claims_figure import claims_figure
from remanence.report.claims_page import FIGURE, HEADING
from remanence.study.export import VERDICTS, write_index


def verdict(claim: str, agreement: str, **test: Any) -> dict[str, Any]:
    numbers = {"effect": 0.5, "interval": [0.25, 0.75], "unit": "tau", "samples": 8}
    numbers |= {"p": 0.01, "p_holm": 0.01, "p_against": 1.0, "p_against_holm": 1.0}
    return {"claim": claim, "agreement": agreement, "test": numbers | test, "why_undecided": ""}


def exported(out: Path, name: str, *verdicts: dict[str, Any]) -> None:
    (out / name).mkdir()
    (out / f"{name}.md").write_text("# A page\n")
    about = {"name": name, "title": "A", "preset": "cpu", "seeds": 8, "network": "small_conv, x"}
    about["core_seconds"] = 900.0
    (out / name / VERDICTS).write_text(json.dumps(about | {"verdicts": verdicts}))


def test_every_claim_has_a_line_with_effect_interval_and_seeds(tmp_path: Path) -> None:
    exported(tmp_path, "proxies", verdict("They correlate.", "agrees"))
    unclear = {"effect": None, "interval": None, "p": 0.1, "p_holm": 0.1}
    exported(tmp_path, "mine", verdict("It | holds.", "undecided", **unclear))
    again = verdict("They correlate.", "undecided"), verdict("Not in the paper: more.", "disagrees")
    exported(tmp_path, "proxies-resnet", *again)
    (tmp_path / "hardest.md").write_text("# An earlier page\n")
    page = write_index(tmp_path).read_text()
    assert page.startswith(HEADING)
    assert f"]({FIGURE})" in page
    assert "They correlate." in (tmp_path / FIGURE).read_text()
    assert "3 claims were tested, 1 of them not in the paper; of the other 2, 1 are decided" in page
    assert "Of the 4 rows, 1 agree with the claim, 1 do not, 2 are undecided." in page
    row = "| They correlate. | **agrees** | 0.50 (0.25 to 0.75) tau | for 0.01, against 1 | 8 seeds | small_conv, x "
    assert f"{row}| [proxies](proxies.md) |" in page
    assert "- [mine](mine.md): It | holds. The seeds do not agree clearly enough" in page
    assert (
        "(for the claim), 31 seeds or pairs instead of 8 would decide with a probability of 80%: about 1.0 h"
        in page
    )
    assert "[proxies-resnet](proxies-resnet.md) |" in page
    assert "unknown tau" in page
    _, _, others = page.partition("Not run with these criteria yet")
    assert "[The hardest examples by several scores](hardest.md)" in others
    assert "proxies.md" not in others


def test_without_an_earlier_page_nothing_is_said_of_others(tmp_path: Path) -> None:
    exported(tmp_path, "proxies", verdict("They correlate.", "disagrees"))
    page = write_index(tmp_path).read_text()
    assert "Not run with" not in page
    assert "Why a claim is undecided" not in page


def test_the_figure_shows_on_which_side_a_claim_lies_and_whether_it_is_decided() -> None:
    verdicts = [
        verdict("It holds. Here: UA.", "agrees"),
        verdict("It does not.", "disagrees", p_holm=1.0, p_against_holm=0.001),
        verdict("Who knows?", "undecided", p_holm=0.1, p_against_holm=0.9),
        {"claim": "No test.", "agreement": "undecided", "test": None, "why_undecided": "too few"},
    ]
    (axes,) = claims_figure([{"name": "mine", "verdicts": verdicts}], 0.05).axes
    ends = [line for line in axes.lines if line.get_marker() == "o"]
    assert [round(float(line.get_xdata()[0]), 3) for line in ends] == [2.0, -3.0, 1.0, 0.0]
    assert [line.get_markerfacecolor() == "white" for line in ends] == [False, False, True, True]
    assert next(label.get_text() for label in axes.get_yticklabels()) == "mine, UA: It holds."
