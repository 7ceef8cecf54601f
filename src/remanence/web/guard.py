"""Who may look: whoever has the address with the token, on this machine. Pages load nothing from elsewhere."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

HOSTS = {"127.0.0.1", "localhost", "::1"}
"""A page elsewhere whose name was made to point here has another host."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # with less, a browser does not say where a form came from, and we ask
    "Referrer-Policy": "same-origin",
}
_LOOKS = ("GET", "HEAD")
_REFUSAL = (
    "<!doctype html><html lang=en><title>403</title><h1>Not allowed</h1>"
    "<p>Open the address that <code>remanence dashboard</code> printed, with its token."
)
Next = Callable[[Request], Awaitable[Response]]


class Guard:
    """Lets a request pass that brings the token, once in the address and then in a cookie."""

    def __init__(self, token: str) -> None:
        self._token = token
        # cookies do not tell ports apart: two dashboards must not take each other's
        self._cookie = "remanence-" + hashlib.sha256(token.encode()).hexdigest()[:12]

    async def __call__(self, request: Request, call_next: Next) -> Response:
        """Refuse, or turn the token into a cookie, or pass on."""
        response = await self._answer(request, call_next)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def _answer(self, request: Request, call_next: Next) -> Response:
        if request.url.hostname not in HOSTS:
            return HTMLResponse(_REFUSAL, 403)
        if self._is_token(request.query_params.get("token", "")):
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            # a path that begins with two slashes would lead to another host
            path = "/" + request.url.path.lstrip("/")
            turned = RedirectResponse(path + ("?" + urlencode(rest) if rest else ""), 303)
            # a strict one would be missing when the address was clicked in another page, a notebook's terminal say
            turned.set_cookie(self._cookie, self._token, httponly=True, samesite="lax")
            return turned
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return HTMLResponse(_REFUSAL, 403)
        if request.method not in _LOOKS and not _is_ours(request):
            return HTMLResponse(_REFUSAL, 403)
        return await call_next(request)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _is_ours(request: Request) -> bool:
    """Whether a page of this dashboard sent it: one of another port of this machine would bring our cookie too."""
    return request.headers.get("origin") == f"{request.url.scheme}://{request.url.netloc}"
