"""Keep the dashboard usable under load: few pages are made at once, and every session gets its turn.

Pages are made by Python threads of one process, so more of them at once only make each slower. A few slots do the
work. Sessions that wait take turns, so that one that floods the dashboard delays another by one page at most. What
does not fit into a session's short queue is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable

from starlette.types import ASGIApp, Receive, Scope, Send

from remanence.web.access_control import SESSION
from remanence.web.refusals import Refusals

SLOTS = 3
"""Pages that are made at once, at most."""
SLOTS_PER_SESSION = 2
"""One session cannot take all slots, however long its pages take."""
MOST_WAITING = 16
"""Requests of one session that may wait; a browser has at most six connections to a host."""
_BUSY = (
    "<!doctype html><html lang=en><title>503</title><h1>Busy</h1>"
    "<p>The dashboard has too many requests from this browser. Open the page again in a moment."
)


class BusyError(Exception):
    """The queue of a session is full."""


class FairQueue:
    """Slots for work, handed to the sessions that wait in turn. Used from one event loop only.

    Args:
        slots: number of slots.
        per_session: slots that one session may hold at the same time.
        most_waiting: requests of one session that may wait.
    """

    def __init__(
        self,
        slots: int = SLOTS,
        per_session: int = SLOTS_PER_SESSION,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._free = slots
        self._per_session = per_session
        self._most_waiting = most_waiting
        self._held: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    async def acquire(self, session: Hashable) -> None:
        """Wait for a slot.

        Raises:
            BusyError: the queue of the session is full.
        """
        queue = self._waiting.setdefault(session, deque())
        if len(queue) >= self._most_waiting:
            raise BusyError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(session)
            raise

    def release(self, session: Hashable) -> None:
        """Give a slot back."""
        self._free += 1
        self._held[session] -= 1
        if not self._held[session]:
            del self._held[session]
        self._hand_out()

    def _hand_out(self) -> None:
        for session in list(self._waiting):
            queue = self._waiting[session]
            while queue and queue[0].cancelled():
                queue.popleft()
            if queue and self._free and self._held[session] < self._per_session:
                self._free -= 1
                self._held[session] += 1
                queue.popleft().set_result(None)
                self._waiting.move_to_end(session)
            if not queue:
                del self._waiting[session]
        if self._free and any(self._held[session] < self._per_session for session in self._waiting):
            self._hand_out()


class FairTurns:
    """ASGI middleware: pages wait for their turn; static files do not."""

    def __init__(self, app: ASGIApp, queue: FairQueue | None = None) -> None:
        self._app = app
        self._queue = queue or FairQueue()
        self._refuse = Refusals(_BUSY, 503)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/static/"):
            await self._app(scope, receive, send)
            return
        session = scope[SESSION].digest
        try:
            await self._queue.acquire(session)
        except BusyError:
            await self._refuse(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._queue.release(session)
