"""The dashboard in a real browser, as wide as a desk and as a phone; `make test-browser` installs what it takes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remanence.data import digits

IDS = "\n".join(str(each) for each in digits()[0].ids[100:140].tolist())
Open = Callable[..., Any]


@pytest.mark.parametrize(("width", "scheme", "name"), [(1280, "light", "desk"), (390, "dark", "phone")])
def test_from_the_hardest_examples_to_the_evidence_of_a_request(
    open_page: Open, folder: Path, width: int, scheme: str, name: str
) -> None:
    visit = open_page(width, scheme)
    visit.check()
    visit.page.get_by_role("link", name=name, exact=True).click()
    visit.page.wait_for_url("**/runs/*")
    visit.check()
    brush_the_hardest(visit, name)
    open_a_history(visit)
    plan(visit, name)
    carry_out(visit, name)
    look_around(visit, folder, name)
    assert visit.console == []
    assert visit.outside == []


def brush_the_hardest(visit: Any, name: str) -> None:
    page = visit.page
    page.get_by_role("link", name="Show the examples").click()
    page.locator("#scatter[data-ready=yes] canvas").wait_for()
    all_of_them = page.locator("#results [role=status]").inner_text()
    page.locator("#scatter").scroll_into_view_if_needed()
    box = page.locator("#scatter canvas").bounding_box()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.98 * box["width"], box["y"] + 0.5 * box["height"], steps=6)
    page.mouse.up()
    page.wait_for_url(re.compile(r"against_from=[\d.]"))
    page.wait_for_function(
        "before => document.querySelector('#results [role=status]').innerText !== before", arg=all_of_them
    )
    assert 0 < int(page.locator("#results [role=status]").inner_text().split()[0]) < 400
    assert float(page.locator("#from").input_value()) > 0  # the number fields say what was brushed
    page.wait_for_function(
        "() => [...document.querySelectorAll('.gallery img')].slice(0, 4).every(i => i.naturalWidth)"
    )
    visit.check()
    page.evaluate("scrollTo(0, 0)")
    visit.shoot(f"dashboard-examples-{name}")
    page.get_by_label("Score").select_option("confidence")  # another pair: what was brushed is gone
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**score=confidence**")
    page.wait_for_function("() => document.getElementById('from').value === ''")
    page.locator("#scatter[data-ready=yes] canvas").wait_for()
    page.go_back()
    page.locator("#scatter[data-ready=yes] canvas").wait_for()


def open_a_history(visit: Any) -> None:
    visit.page.locator(".gallery a").first.click()
    visit.page.get_by_role("heading", name="History").wait_for()
    visit.check()


def plan(visit: Any, name: str) -> None:
    page = visit.page
    page.get_by_role("link", name="All examples").click()
    page.get_by_role("heading", name="Examples of").get_by_role("link").click()
    page.get_by_role("link", name="Plan a request").click()
    page.get_by_label("Paste ids").fill(IDS)
    visit.check()
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("heading", name="Plan for the removal of 40 examples").wait_for()
    page.get_by_text("90 % interval").wait_for()
    page.wait_for_load_state("networkidle")
    visit.check()
    visit.shoot(f"dashboard-plan-{name}")


def carry_out(visit: Any, name: str) -> None:
    page = visit.page
    page.get_by_label("Requested by").fill("Legal")
    page.get_by_role("button", name="Start the request").click()
    page.get_by_role("button", name="Stop").wait_for()
    visit.check()
    visit.shoot(f"dashboard-request-{name}")
    page.get_by_role("link", name="Open the evidence").wait_for(timeout=90_000)  # it finishes while we watch
    visit.check()
    page.get_by_role("link", name="Open the evidence").click()
    page.get_by_role("heading", name="Verification").wait_for()
    assert page.locator(".checks .bad").count() == 0
    assert page.locator(".checks .ok").count() >= 8
    visit.check()
    visit.shoot(f"dashboard-evidence-{name}")


def look_around(visit: Any, folder: Path, name: str) -> None:
    page = visit.page
    page.get_by_role("link", name="Open the document").click()
    page.get_by_role(
        "heading", name=re.compile("Evidence of .*: (forgotten|not forgotten|carried out)")
    ).wait_for()
    page.get_by_text("asked by Legal").wait_for()
    for place in ("requests", "certificates", "studies"):
        page.goto(visit.home + place)
        visit.check()
        visit.shoot(f"dashboard-{place}-{name}")
    page.locator(".card a").first.click()
    page.wait_for_url("**/studies/figure-*")
    page.wait_for_load_state("networkidle")
    visit.check()
    visit.shoot(f"dashboard-study-{name}")
    [document] = (folder / f"{name}-requests").glob("*/run/evidence.html")
    outside = list(visit.outside)
    page.goto(document.as_uri())  # served, it may run no script, not even axe's
    visit.check()
    visit.outside[:] = outside


def test_everything_works_without_javascript(open_page: Open) -> None:
    page = open_page(1280, "light", java_script_enabled=False).page
    page.get_by_role("link", name="plain", exact=True).click()
    page.get_by_role("link", name="Show the examples").click()
    page.get_by_label("Class").select_option("8")
    page.get_by_label("Percentile from").fill("50")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**label=8**")  # a click does not wait for the page it leads to
    assert page.locator(".gallery li").count() == 48
    page.goto(page.url.split("/examples")[0] + "/plan")
    page.get_by_label("Paste ids").fill(IDS)
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_role("button", name="Start the request").click()
    page.get_by_role("link", name="Open the evidence").wait_for(timeout=90_000)  # the page loads itself anew


def test_the_keyboard_does_what_the_brush_does(open_page: Open) -> None:
    page = open_page(1280, "light").page
    page.get_by_role("link", name="plain", exact=True).press("Enter")
    page.get_by_role("link", name="Show the examples").press("Enter")
    page.locator("#from").focus()
    page.keyboard.type("100")
    page.keyboard.press("Enter")
    page.wait_for_url("**from=100**")
    page.wait_for_function("() => document.querySelectorAll('#results .gallery li').length > 0")
    page.get_by_label("First").select_option("smallest")  # what is just inside
    page.get_by_role("button", name="Show").press("Enter")
    page.wait_for_url("**order=smallest**from=100**")
    page.wait_for_function("() => parseFloat(document.querySelector('.gallery .soft').innerText) < 1000")
    values = page.locator(".gallery .soft").all_inner_texts()
    assert all(number(value) >= 100 for value in values)


def number(text: str) -> float:
    """As the pages write it: 123, or 1.2 × 10⁻³."""
    mantissa, _, exponent = text.partition("×10")
    return float(mantissa) * 10 ** int(exponent.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")) or 0)


def test_what_was_refused_in_the_background_is_said(open_page: Open) -> None:
    page = open_page(1280, "light").page
    page.get_by_role("link", name="plain", exact=True).click()
    page.get_by_role("link", name="Show the examples").click()
    page.get_by_label("Percentile from").fill("60")
    page.get_by_label("to", exact=True).first.fill("50")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("alert").get_by_text("`low` must not be above `high`").wait_for()
    page.get_by_label("Percentile from").fill("40")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**low=40**")
    assert page.get_by_role("alert").count() == 0


def test_the_keyboard_keeps_its_place_while_a_page_renews_itself(open_page: Open) -> None:
    page = open_page(1280, "light").page
    page.get_by_role("link", name="keys", exact=True).click()
    page.get_by_role("link", name="Plan a request").click()
    page.get_by_label("Paste ids").fill(IDS.replace("\n", ","))
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_label("Retrain a model").check()  # so that it lasts
    page.get_by_role("button", name="Start the request").click()
    page.get_by_role("button", name="Stop").focus()
    page.evaluate("document.getElementById('progress').dataset.old = 'yes'")
    page.locator("#progress:not([data-old])").wait_for()
    assert page.evaluate("document.activeElement.id") == "stop"
    page.keyboard.press("Enter")
    page.get_by_text("The request was stopped before it finished").wait_for()


def test_axe_would_notice(open_page: Open) -> None:
    visit = open_page(1280, "light")
    visit.page.evaluate("document.body.append(document.createElement('button'))")
    with pytest.raises(AssertionError, match="button-name"):
        visit.check()
