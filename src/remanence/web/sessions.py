"""Sessions of browsers: a random id in a cookie stands for the token, and is worth nothing elsewhere or later."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_SESSIONS = 32
IDLE_SECONDS = 12 * 3600.0


@dataclass
class Session:
    """One browser that has shown the token.

    Args:
        digest: SHA-256 of the id in its cookie; the id itself is not kept.
        port: the port in the address that the browser used. Browsers send a cookie to every port of a host.
        last_used: time of the last request, in seconds.
    """

    digest: bytes
    port: int | None
    last_used: float


class Sessions:
    """The sessions of one dashboard, in memory: they end with it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions: list[Session] = []
        self._clock = clock

    def open(self, port: int | None) -> str:
        """Begin a session and return its id; beyond the limit, the one that was not used for longest ends."""
        session_id = secrets.token_urlsafe(32)
        self._remove_idle()
        self._sessions.sort(key=lambda session: session.last_used)
        del self._sessions[: max(0, len(self._sessions) - MOST_SESSIONS + 1)]
        self._sessions.append(Session(_digest(session_id), port, self._clock()))
        return session_id

    def find(self, session_id: str, port: int | None) -> Session | None:
        """The session with this id on this port, if it has not expired."""
        self._remove_idle()
        digest = _digest(session_id)
        # every session is compared, each in constant time
        matches = [session for session in self._sessions if secrets.compare_digest(session.digest, digest)]
        if not matches or matches[0].port != port:
            return None
        matches[0].last_used = self._clock()
        return matches[0]

    def _remove_idle(self) -> None:
        oldest = self._clock() - IDLE_SECONDS
        self._sessions = [session for session in self._sessions if session.last_used >= oldest]


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "replace")).digest()
