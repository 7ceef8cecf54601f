"""The dashboard's pages, asked as a browser asks them."""

import asyncio
import gc
import io
import re
import shutil
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import remanence as rm
from remanence.data import TableSettings
from remanence.scores import score_table
from remanence.training import RunSettings, train_run
from remanence.web.example_filter import PAGE, percentiles, read_filter, select_page
from remanence.web.run_catalog import RunCatalog
from remanence.web.server import free_socket
from remanence.web.thumbnails import thumbnail_png

TOKEN = "a-token-of-the-test"
Visit = Callable[..., Any]
Browser = Any
"""As conftest.py has it."""
MARKUP = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on digits, and one on a table whose ids and classes are markup."""
    folder = tmp_path_factory.mktemp("runs")
    recipe = rm.Recipe(epochs=1, learning_rate=0.1)
    train_run(RunSettings("digits", "mlp", recipe, record=3), folder / "run")
    train_run(RunSettings("digits", "mlp", recipe, record=0), folder / "bare")
    rows = [f"{MARKUP}{i},{i % 5},{i % 3},{'<b>' if i % 2 else 'no'}" for i in range(60)]
    table = folder / "table.csv"
    table.write_text("\n".join(["id,a,b,label", *rows]) + "\n")
    as_it_is = TableSettings(standardize=False)
    train_run(RunSettings(str(table), "mlp", recipe, record=2, table=as_it_is), folder / "<i>rows")
    return folder


@pytest.fixture
def browser(made: Path, visit: Visit) -> Browser:
    return visit([made / "run", made / "bare", made / "<i>rows"])


@pytest.mark.parametrize(
    "address",
    ["/", "/?token=", "/?token=wrong", "/runs/0", "/static/style.css", "/runs/0/pictures/1.png", "/nothing"],
)
def test_without_the_token_nothing_is_told(made: Path, address: str, visit: Visit) -> None:
    answer = visit([made / "run"], cookie=False).get(address)
    assert answer.status_code == 403
    assert str(made) not in answer.text
    assert TOKEN not in answer.text
    assert "set-cookie" not in answer.headers


def test_the_token_becomes_a_cookie_and_leaves_the_address(made: Path, visit: Visit) -> None:
    answer = visit([made / "run"], cookie=False).get(f"/runs/0/examples?score=privacy_loss&token={TOKEN}")
    assert answer.status_code == 200
    assert 'content="0; url=/runs/0/examples?score=privacy_loss"' in answer.text
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert TOKEN not in answer.headers["set-cookie"] + answer.text


def test_the_token_leads_to_no_other_host(made: Path, visit: Visit) -> None:
    answer = visit([made / "run"], cookie=False).get(
        f"http://127.0.0.1:8642//elsewhere.example/?token={TOKEN}"
    )
    assert 'content="0; url=/elsewhere.example/"' in answer.text


def test_another_name_for_this_machine_is_refused(made: Path, visit: Visit) -> None:
    answer = visit([made / "run"], cookie=False, host="rebound.example").get(f"/?token={TOKEN}")
    assert answer.status_code == 403


def test_runs_and_their_settings(browser: Browser, made: Path) -> None:
    assert str(made / "run") in browser.get("/").text
    page = browser.get("/runs/0").text
    assert 'data = "digits"' in page.replace("&#34;", '"')
    assert rm.open_run(made / "run").folder.digest() in page
    assert "recorded no trace" in browser.get("/runs/1").text
    assert "Expected a trace in" in browser.get("/runs/1/examples").text


def test_no_runs_say_what_to_do(visit: Visit) -> None:
    assert "remanence train" in visit([]).get("/").text


def test_pages_load_nothing_from_elsewhere(browser: Browser) -> None:
    for address in ("/", "/runs/0", "/runs/0/examples", "/runs/0/examples/5", "/static/style.css"):
        answer = browser.get(address)
        assert answer.status_code == 200
        assert "http:" not in answer.text.replace("http://127.0.0.1:8642", "")
        assert "https:" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_examples_are_sorted_filtered_and_paged(browser: Browser, made: Path) -> None:
    losses = rm.theory.privacy_loss(rm.open_run(made / "run").trace())
    order = np.argsort(-losses.values, kind="stable")
    first = browser.get("/runs/0/examples").text
    assert f"{len(order)} examples; page 1 of {-(-len(order) // PAGE)}" in first
    assert f'/runs/0/examples/{order[0]}"' in first
    assert f'/runs/0/examples/{order[PAGE]}"' not in first
    second = browser.get("/runs/0/examples?page=2").text
    assert f'/runs/0/examples/{order[PAGE]}"' in second
    assert "page 28 of 28" in browser.get("/runs/0/examples?page=999999").text
    easy = browser.get("/runs/0/examples?order=smallest&label=3&high=50").text
    assert " · 3</span>" in easy
    assert " · 4</span>" not in easy


def test_one_example_has_a_picture_and_a_history(browser: Browser) -> None:
    page = browser.get("/runs/0/examples/7").text
    assert "percentile" in page
    picture = browser.get("/runs/0/pictures/7.png")
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.content)).size == (96, 96)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/runs/99", 404),
        ("/runs/-1", 404),
        ("/runs/x", 404),
        ("/runs/..%2f..%2fetc/examples", 404),
        ("/../../etc/passwd", 404),
        ("/runs/0/examples/999999999", 404),
        ("/runs/0/pictures/..%2f1.png", 404),
        ("/runs/2/pictures/0.png", 404),
        ("/runs/0/examples?score=" + MARKUP, 400),
        ("/runs/0/examples?label=99", 400),
        ("/runs/0/examples?low=nan", 400),
        ("/runs/0/examples?low=60&high=50", 400),
        ("/runs/0/examples?page=0", 400),
        ("/runs/0/examples?page=1e400", 400),
        ("/runs/0/examples?order=up", 400),
        ("/runs/0/examples?from=x", 400),
        ("/runs/0/examples?from=nan", 400),
        ("/runs/0/examples?from=2&to=1", 400),
        ("/runs/0/examples?against=" + MARKUP, 400),
        ("/runs/0/points?score=x", 400),
        ("/runs/0/spread.png?score=x", 400),
    ],
)
def test_wrong_addresses_get_a_clear_page(browser: Browser, address: str, status: int) -> None:
    answer = browser.get(address)
    assert answer.status_code == status
    assert "<h1>" in answer.text
    assert "Traceback" not in answer.text
    assert MARKUP not in answer.text


def test_markup_in_ids_classes_and_paths_is_escaped(browser: Browser) -> None:
    for address in ("/", "/runs/2", "/runs/2/examples", "/runs/2/examples/3"):
        text = browser.get(address).text
        assert MARKUP not in text
        assert "<i>rows" not in text
        assert "<b>" not in text
    assert "&lt;script&gt;" in browser.get("/runs/2/examples").text


def test_a_run_that_disappears_and_comes_back(made: Path, tmp_path: Path, visit: Visit) -> None:
    shutil.copytree(made / "run", tmp_path / "run")
    browser = visit([tmp_path / "run", made / "bare"])
    assert browser.get("/runs/0/examples").status_code == 200
    (tmp_path / "run").rename(tmp_path / "away")
    gone = browser.get("/runs/0/examples")
    assert gone.status_code == 404
    assert "no longer there" in gone.text
    assert str(made / "bare") in browser.get("/").text
    (tmp_path / "away").rename(tmp_path / "run")
    assert browser.get("/runs/0/examples").status_code == 200
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(made / "bare", tmp_path / "run", copy_function=shutil.copy)  # written anew
    assert "Expected a trace in" in browser.get("/runs/0/examples").text


def test_a_disk_that_refuses_is_said(made: Path, tmp_path: Path, visit: Visit) -> None:
    shutil.copytree(made / "run", tmp_path / "run")
    browser = visit([tmp_path / "run"])
    assert browser.get("/runs/0").status_code == 200
    (tmp_path / "run" / "config.toml").unlink()
    gone = browser.get("/runs/0")
    assert (gone.status_code, "is missing" in gone.text) == (404, True)
    (tmp_path / "run" / "config.toml").mkdir()  # anything but a missing file
    refused = browser.get("/runs/0")
    assert (refused.status_code, "The disk refused: Is a directory." in refused.text) == (500, True)


def test_a_fault_of_ours_says_so_and_tells_nothing(
    made: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = visit([made / "run"], faults_end_the_test=False)
    monkeypatch.setattr("remanence.web.run_pages.select_page", lambda *_: 1 // 0)
    answer = browser.get("/runs/0/examples")
    assert answer.status_code == 500
    assert "a bug in the dashboard" in answer.text
    assert not any(told in answer.text for told in ("ZeroDivision", "Traceback", str(made), TOKEN))


def test_a_run_that_was_let_go_leaves_memory_at_once(made: Path) -> None:
    catalog = RunCatalog([made / "run", made / "<i>rows"], keep=1)
    gc.disable()  # which would free it some time
    try:
        catalog.get(0).thumbnail(3)
        held = weakref.ref(catalog.get(0).examples)
        assert held() is not None
        _ = catalog.get(1).trace
        catalog.get(1)
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (0.0, 255.0), (-2.0, 2.0)])
def test_pictures_of_any_range_are_not_burnt_out(least: float, most: float) -> None:
    pixels = np.linspace(least, most, 3 * 96 * 96).reshape(3, 96, 96)
    found = np.asarray(Image.open(io.BytesIO(thumbnail_png(pixels))))
    assert (found.min(), found.max()) == (0, 255)
    assert np.unique(found).size == 256


def test_rows_show_their_features_and_ranges_keep_their_digits(browser: Browser) -> None:
    page = browser.get("/runs/2/examples/7").text
    features = page.split("<h2>Features</h2>")[1].split("</p>")[0]
    [i] = re.findall(r"(\d+)</h1>", page)
    assert re.findall(r"(?<= |>)\d(?= )", features) == [str(int(i) % 5), str(int(i) % 3)]
    assert "<h2>Features</h2>" not in browser.get("/runs/0/examples/7").text
    assert 'value="0.99996"' in browser.get("/runs/0/examples?from=0.99996").text


def test_a_port_in_use_gives_the_next() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with free_socket(port) as found:
            assert found.getsockname()[0] == "127.0.0.1"
            assert found.getsockname()[1] > port
    with pytest.raises(rm.InputError, match="1 to 65535"):
        free_socket(70000)


def test_a_port_that_cannot_be_had_is_not_said_to_be_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remanence.web.server.LOOPBACK", "203.0.113.1")  # no address of this machine
    with pytest.raises(rm.InputError, match=r"Port 20000 cannot be used: \w"):
        free_socket(20_000)


def test_small_answers_are_sent_at_once() -> None:
    """Without that every picture waits 40 ms for the browser to acknowledge its header."""
    at_once: asyncio.Queue[int] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        at_once.put_nowait(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def visited() -> int:
        listening = free_socket(20_000)
        async with await asyncio.start_server(answer, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await at_once.get()

    assert asyncio.run(visited()) == 1


def test_ties_and_infinities_are_paged_once_each() -> None:
    values = np.array([np.inf, 1.0, 1.0, np.inf, 0.0] * 30)
    labels = np.zeros(150, np.int64)
    wishes = [read_filter({"page": str(page)}, ["s"], 1) for page in range(1, 5)]
    seen = [
        place
        for chosen in wishes
        for place in select_page(chosen, {"s": values}, percentiles(values), labels).places.tolist()
    ]
    assert sorted(seen) == list(range(150))


def test_thumbnails_of_any_size() -> None:
    for shape in ((1, 8, 8), (3, 32, 32), (1, 28, 14), (3, 300, 500)):
        image = Image.open(io.BytesIO(thumbnail_png(np.full(shape, np.nan, np.float32))))
        assert max(image.size) <= 96


def test_values_of_both_scores_filter_the_gallery(browser: Browser, made: Path) -> None:
    table = score_table(rm.open_run(made / "run").trace())
    x, y = table.column("privacy_loss").values, table.column("confidence").values
    low, high = np.quantile(x, (0.9, 0.99))
    least = np.median(y)
    wanted = int(
        ((x >= float(f"{low:.6g}")) & (x <= float(f"{high:.6g}")) & (y >= float(f"{least:.6g}"))).sum()
    )
    asked = f"score=privacy_loss&against=confidence&from={low:.6g}&to={high:.6g}&against_from={least:.6g}"
    assert f"{wanted} examples;" in browser.get(f"/runs/0/examples?{asked}").text
    # values that were meant for another score are passed over
    assert f"{len(x)} examples;" in browser.get(f"/runs/0/examples?{asked}&of=x&against_of=x").text
    found = browser.get("/runs/0/points?score=privacy_loss&against=confidence").json()
    assert len(found["x"]) == len(found["y"]) == len(found["label"]) == len(x)


def test_the_picture_of_a_score_comes_by_itself(browser: Browser) -> None:
    assert "/runs/0/spread.png?score=confidence" in browser.get("/runs/0/examples?score=confidence").text
    first, again, other = (
        browser.get(f"/runs/0/spread.png?score={score}").content
        for score in ("confidence", "confidence", "privacy_loss")
    )
    assert Image.open(io.BytesIO(first)).width > 400
    assert first == again != other


def test_scripts_come_from_here_and_nothing_else_does(browser: Browser) -> None:
    policy = browser.get("/").headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert browser.get("/static/htmx.min.js").headers["content-type"].startswith("text/javascript")
    for name in ("..%2fapp.py", "vendored.json", "%2e%2e/app.py", "nothing.js"):
        assert browser.get(f"/static/{name}").status_code == 404


def test_the_data_of_only_a_few_runs_are_kept_in_memory(made: Path) -> None:
    catalog = RunCatalog([made / "run", made / "<i>rows", made / "bare"], keep=1)
    catalog.warm()
    first = catalog.get(0)
    assert first.is_loaded  # before anybody asked
    catalog.all()
    assert catalog.get(0) is first
    assert len(catalog.get(1).examples) > 0
    assert catalog.get(1).is_loaded
    assert not catalog.get(0).is_loaded
    RunCatalog([]).warm()
    RunCatalog([made / "bare", made / "nowhere"]).warm()
