"""Sessions: what a stolen, old or foreign cookie is worth."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from remanence.web.app import make_app
from remanence.web.sessions import IDLE_SECONDS, MOST_SESSIONS, Sessions

TOKEN = "a-token-of-the-test"


async def ask(app: Any, address: str, cookie: str = "", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    sent |= {b"cookie": cookie.encode("latin-1")} if cookie else {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
        return await client.get(address, headers=sent)


def answer(app: Any, address: str, cookie: str = "", **headers: str) -> httpx.Response:
    return asyncio.run(ask(app, address, cookie, **headers))


def session_of(app: Any, port: int = 8642) -> str:
    """The cookie that the token is exchanged for."""
    set_cookie = answer(app, f"http://127.0.0.1:{port}/?token={TOKEN}").headers["set-cookie"]
    return str(set_cookie.split(";")[0])


@pytest.fixture
def app() -> Any:
    return make_app([], TOKEN)


def test_the_cookie_is_a_random_session_and_not_the_token(app: Any) -> None:
    first, second = session_of(app), session_of(app)
    assert first != second
    assert TOKEN not in first
    assert re.fullmatch(r"remanence-8642=[\w-]{43}", first)
    assert answer(app, "http://127.0.0.1:8642/", first).status_code == 200
    assert answer(app, "http://127.0.0.1:8642/", f"remanence-8642={TOKEN}").status_code == 403
    assert answer(app, "http://127.0.0.1:8642/", first[:-1]).status_code == 403


def test_a_session_is_bound_to_its_port(app: Any) -> None:
    cookie = session_of(app)
    assert answer(app, "http://127.0.0.1:8643/", cookie).status_code == 403
    renamed = cookie.replace("8642", "8643")
    assert answer(app, "http://127.0.0.1:8643/", renamed).status_code == 403
    assert (
        answer(make_app([], TOKEN), "http://127.0.0.1:8642/", cookie).status_code == 403
    )  # another dashboard


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-origin", "cors", 200),
        ("same-origin", "navigate", 200),
        ("none", "navigate", 200),
        ("same-site", "navigate", 200),
        ("same-site", "no-cors", 403),
        ("cross-site", "no-cors", 403),
    ],
)
def test_pages_of_other_ports_embed_nothing(app: Any, site: str, mode: str, status: int) -> None:
    headers = {"sec_fetch_site": site, "sec_fetch_mode": mode}
    assert answer(app, "http://127.0.0.1:8642/", session_of(app), **headers).status_code == status


@pytest.mark.parametrize("cookie", ["remanence-8642=", "remanence-8642=\xff", "=;;=", "remanence-8642=a=b"])
def test_strange_cookies_are_refused(app: Any, cookie: str) -> None:
    assert answer(app, "http://127.0.0.1:8642/", cookie).status_code == 403
    assert answer(app, "http://127.0.0.1:8642/?token=%ff%fe", cookie).status_code == 403


def test_sessions_expire_and_are_limited_in_number() -> None:
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    first = sessions.open(1)
    now[0] = IDLE_SECONDS - 1
    assert sessions.find(first, 1) is not None  # and is used by that
    now[0] = 2 * IDLE_SECONDS - 2
    assert sessions.find(first, 1) is not None
    now[0] += IDLE_SECONDS + 1
    assert sessions.find(first, 1) is None
    opened = []
    for _ in range(MOST_SESSIONS + 1):
        now[0] += 1
        opened.append(sessions.open(1))
    assert sessions.find(opened[0], 1) is None
    assert all(sessions.find(session_id, 1) is not None for session_id in opened[1:])


def test_a_refused_request_does_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("remanence.web.run_catalog.open_run", opened.append)
    app = make_app([tmp_path], TOKEN)
    assert answer(app, "http://127.0.0.1:8642/runs/0").status_code == 403
    assert opened == []
