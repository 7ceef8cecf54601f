"""Who may see the dashboard: a browser on this machine that has shown the token. Pages load nothing from elsewhere."""

from __future__ import annotations

import html
import secrets
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remanence.web.refusals import Refusals
from remanence.web.sessions import Session, Sessions

HOSTS = {"127.0.0.1", "localhost", "::1"}
"""A page elsewhere whose name was made to resolve to this machine has another host."""
SESSION = "remanence.session"
"""Where the session of a request is in its ASGI scope."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # with a stricter policy, a browser does not send the origin of a form, which is checked here
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SAFE_METHODS = ("GET", "HEAD")
_REFUSAL = (
    "<!doctype html><html lang=en><title>403</title><h1>Not allowed</h1>"
    "<p>Open the address that <code>remanence dashboard</code> printed, with its token."
    '<p>If you came from a link on another page, <a href="">open this page again</a>.'
)
_WELCOME = (
    '<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content="0; url={place}">'
    '<link rel=icon href="data:,"><title>Remanence</title><p><a href="{place}">Open the dashboard</a>'
)


class AccessControl:
    """ASGI middleware: exchanges the token for a session, and passes on requests that have one."""

    def __init__(self, app: ASGIApp, token: str, sessions: Sessions | None = None) -> None:
        self._app = app
        self._token = token
        self._sessions = sessions or Sessions()
        self._refuse = Refusals(_REFUSAL, 403)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, _with_headers(send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.url.hostname not in HOSTS:
            await self._refuse(scope, receive, send)
        elif self._has_token(request):
            await self._welcome(request)(scope, receive, send)
        elif (session := self._session(request)) is None or _is_foreign(request):
            await self._refuse(scope, receive, send)
        else:
            scope[SESSION] = session
            await self._app(scope, receive, send)

    def _has_token(self, request: Request) -> bool:
        given = request.query_params.get("token", "").encode("utf-8", "replace")
        return request.method in _SAFE_METHODS and secrets.compare_digest(given, self._token.encode())

    def _session(self, request: Request) -> Session | None:
        session_id = request.cookies.get(_cookie_name(request))
        return None if session_id is None else self._sessions.find(session_id, request.url.port)

    def _welcome(self, request: Request) -> Response:
        """A page that sets the cookie and opens the same address without the token.

        A redirect would not do: after a click in another page (a notebook), browsers treat it as a part of that
        page's navigation and leave out a strict cookie. The next navigation of this page is the dashboard's own.
        """
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        # a path that begins with two slashes would lead to another host
        place = "/" + request.url.path.lstrip("/") + ("?" + urlencode(query) if query else "")
        response = HTMLResponse(_WELCOME.format(place=html.escape(place)))
        response.headers["Referrer-Policy"] = "no-referrer"  # the address has the token
        session_id = self._sessions.open(request.url.port)
        response.set_cookie(_cookie_name(request), session_id, httponly=True, samesite="strict")
        return response


def _cookie_name(request: Request) -> str:
    """Two dashboards on two ports share one cookie jar, so each has a name of its own."""
    return f"remanence-{request.url.port or 80}"


def _is_foreign(request: Request) -> bool:
    """Whether a page that is not the dashboard's sent it; pages of other ports of this machine send the cookie too."""
    if request.method not in _SAFE_METHODS:
        return request.headers.get("origin") != f"{request.url.scheme}://{request.url.netloc}"
    embedded = request.headers.get("sec-fetch-mode", "navigate") != "navigate"
    return embedded and request.headers.get("sec-fetch-site") in ("same-site", "cross-site")


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
