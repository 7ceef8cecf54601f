"""Planning in the dashboard: as the command plans, and what is wrong with a list is said on the page."""

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import remanence as rm
from remanence.cli.main import run as command
from remanence.data import digits
from remanence.web.uploads import LIMIT, harmless

IDS = digits()[0].ids.tolist()
MARKUP = "<script>alert(1)</script>"
Visit = Callable[..., Any]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def table(ids: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([["id", "why"], *[[each, "asked"] for each in ids]])
    return text.getvalue().encode()


def test_a_run_without_calibration_is_planned_from_its_trace(run: Path, visit: Visit) -> None:
    (run / "calibration").rename(run.parent / "elsewhere")
    browser = visit([run])
    assert "<textarea" in browser.get("/runs/0/plan").text
    answer = browser.post("/runs/0/plan", ids=" ".join(map(str, IDS[100:140])))
    page = browser.get(answer.headers["location"])
    assert "never *forgotten*" in page.text
    assert "Unlearning stops when" in page.text
    assert "of test accuracy" not in page.text


def test_a_plan_from_pasted_ids_is_the_commands_plan(
    run: Path, visit: Visit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids, browser, before = IDS[100:140], visit([run]), contents(run.parent)
    answer = browser.post("/runs/0/plan", ids=" , ".join(map(str, ids)))
    assert answer.status_code == 303
    page = browser.get(answer.headers["location"])
    assert page.status_code == 200
    assert contents(run.parent) == before
    (tmp_path / "request.csv").write_bytes(table(ids))
    assert command(["plan", str(run), "--ids", str(tmp_path / "request.csv"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["recommendation"].replace("&", "&amp;") in page.text
    assert f"<b>{plan['forecast']['steps']:.0f}</b>" in page.text
    assert plan["bound"]["status"] in page.text
    hardest = plan["members"][0]
    assert f"{hardest['id']} · {hardest['label']}" in page.text
    again = browser.post("/runs/0/plan", file=("request.csv", table(ids)))
    assert again.headers["location"] == answer.headers["location"]  # the same ids are the same request


def test_a_header_that_was_copied_with_its_column_is_no_id(run: Path, visit: Visit) -> None:
    text = "id\n" + "\n".join(map(str, IDS[:25]))
    assert visit([run]).post("/runs/0/plan", ids=text).status_code == 303


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"ids": ""}, "Paste at least one id"),
        ({"ids": "7\n999999"}, "pasted.txt, line 2: no example has the id"),
        ({"ids": f"{IDS[0]}\n{IDS[0]}"}, "pasted.txt, line 2: ids must be unique"),
        ({"ids": MARKUP}, "&lt;script&gt;"),
        ({"ids": "7", "file": ("a.csv", b"id\n7\n")}, "not both"),
        ({"file": ("legal.csv", b"id,why\n7,x\n9\n")}, "legal.csv, line 3: must have 2 fields"),
        ({"file": ("legal.csv", b"name\n7\n")}, "legal.csv has no column"),
        ({"file": ("legal.csv", b"id\n"), "column": "id"}, "legal.csv has no rows"),
        ({"file": ("a.csv", bytes(range(256)) * 64)}, "a.csv must be text in UTF-8"),
        ({"file": ("a.png", b"\x89PNG\r\n\x1a\n" * 9)}, "a.txt must be text in UTF-8"),
        ({"file": ("a.parquet", b"no parquet")}, "a.parquet"),
        ({"file": ("a.json", b"{")}, "a.json"),
        ({"file": ("../../etc/passwd.csv", b"id\n-1\n")}, "passwd.csv, line 2"),
        ({"file": (MARKUP + ".csv", b"id\n-1\n")}, "line 2: no example has the id"),
    ],
    ids=lambda value: re.sub(r"\W+", "-", value)[:30] if isinstance(value, str) else "",
)
def test_a_wrong_list_is_refused_in_one_sentence(
    run: Path, visit: Visit, form: dict[str, Any], sentence: str
) -> None:
    before = contents(run.parent)
    answer = visit([run]).post("/runs/0/plan", **form)
    assert answer.status_code == 400
    assert sentence.replace("'", "&#39;") in answer.text
    assert "Traceback" not in answer.text
    assert "/tmp" not in re.sub(re.escape(str(run)), "", answer.text)
    assert MARKUP not in answer.text
    assert contents(run.parent) == before


def test_what_a_hundred_megabytes_get(run: Path, visit: Visit) -> None:
    browser, before = visit([run]), contents(run.parent)
    kind = {"content-type": "multipart/form-data; boundary=b", "origin": "http://127.0.0.1:8642"}

    async def flood() -> AsyncIterator[bytes]:
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
        for _ in range(100):
            yield b"7" * (1 << 20)

    answer = browser.send("/runs/0/plan", content=flood(), headers=kind)
    assert answer.status_code == 413
    assert f"at most {LIMIT >> 20} MB" in answer.text
    assert contents(run.parent) == before


@pytest.mark.parametrize(
    "kind", ["application/json", "multipart/form-data", "multipart/form-data; boundary=x"]
)
def test_what_is_no_form_is_refused(run: Path, visit: Visit, kind: str) -> None:
    headers = {"content-type": kind, "origin": "http://127.0.0.1:8642"}
    answer = visit([run]).send("/runs/0/plan", content=b"{}", headers=headers)
    assert answer.status_code == 400
    assert "<h1>" in answer.text


@pytest.mark.parametrize("origin", ["", "null", "http://127.0.0.1:3000", "http://evil.example"])
def test_a_form_of_another_page_is_refused(run: Path, visit: Visit, origin: str) -> None:
    answer = visit([run], origin=origin).post("/runs/0/plan", ids=str(IDS[0]))
    assert answer.status_code == 403


def test_a_form_without_the_token_is_refused(run: Path, visit: Visit) -> None:
    assert visit([run], cookie=False).post("/runs/0/plan", ids=str(IDS[0])).status_code == 403


def test_a_run_that_disappears_while_it_is_planned(run: Path, visit: Visit) -> None:
    browser = visit([run])
    planned = browser.post("/runs/0/plan", ids="\n".join(map(str, IDS[:30]))).headers["location"]
    run.rename(run.parent / "away")
    for answer in (
        browser.post("/runs/0/plan", ids="7"),
        browser.get(planned),
        browser.post(f"{planned}/start"),
    ):
        assert answer.status_code == 404
        assert "no longer there" in answer.text


def test_plans_that_are_not_kept(run: Path, visit: Visit) -> None:
    browser = visit([run])
    for address in ("/runs/0/plans/0123456789abcdef", "/runs/0/plans/..%2f..", "/runs/9/plans/x"):
        assert browser.get(address).status_code == 404


def test_names_of_files_are_only_names() -> None:
    assert harmless("../../etc/passwd") == "passwd.txt"
    assert harmless("C:\\mine\\Müll 1.CSV") == "M-ll-1.csv"
    assert harmless(".csv") == "csv.txt"
    assert harmless("--out=x.json") == "out-x.json"
    assert len(harmless("a" * 999 + ".csv")) == 64


def test_ids_that_are_text_and_markup(visit: Visit, tmp_path: Path) -> None:
    from remanence.training import RunSettings, train_run

    rows = [f"{MARKUP} {i},{i % 5},{i % 3},{i % 2}" for i in range(60)]
    (tmp_path / "table.csv").write_text("\n".join(["id,a,b,label", *rows]) + "\n")
    recipe = rm.Recipe(epochs=1, learning_rate=0.1)
    train_run(RunSettings(str(tmp_path / "table.csv"), "mlp", recipe, record=2), tmp_path / "run")
    page = visit([tmp_path / "run"]).get("/runs/0/plan").text
    assert MARKUP not in page
    answer = visit([tmp_path / "run"]).post("/runs/0/plan", ids=f"{MARKUP} 3\n{MARKUP} 4")
    assert answer.status_code in (303, 400)  # one of them may be in the held-out split
    assert MARKUP not in answer.text
