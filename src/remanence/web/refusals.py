"""Refusals that cost little, however many there are."""

from __future__ import annotations

import asyncio
import time

from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

_AT_ONCE = 20
"""Refusals per second that are sent at once."""
_DELAY = 0.5
"""Seconds that further ones wait: a client that tries again at once would otherwise occupy the server."""


class Refusals:
    """Sends refusals; those of a flood are delayed, and what waits in a delay takes no thread."""

    def __init__(self, text: str, status: int) -> None:
        self._response = HTMLResponse(text, status, {"Retry-After": "1"} if status == 503 else None)
        self._second = 0
        self._sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        second = int(time.monotonic())
        self._sent = self._sent + 1 if second == self._second else 1
        self._second = second
        if self._sent > _AT_ONCE:
            await asyncio.sleep(_DELAY)
        await self._response(scope, receive, send)
