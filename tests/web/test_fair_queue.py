"""One session that floods the dashboard does not starve another."""

import asyncio
import time
from typing import Any

import pytest

from remanence.web.access_control import SESSION
from remanence.web.fair_queue import BusyError, FairQueue, FairTurns
from remanence.web.refusals import Refusals
from remanence.web.sessions import Session


def test_waiting_sessions_take_turns() -> None:
    async def scenario() -> list[str]:
        queue, order = FairQueue(slots=1, per_session=1, most_waiting=8), []

        async def work(session: str) -> None:
            await queue.acquire(session)
            order.append(session)
            await asyncio.sleep(0)
            queue.release(session)

        await queue.acquire("flood")
        tasks = [asyncio.create_task(work(session)) for session in ("flood",) * 5 + ("user", "other")]
        await asyncio.sleep(0)
        queue.release("flood")
        await asyncio.gather(*tasks)
        return order

    order = asyncio.run(scenario())
    assert order[:3] == ["flood", "user", "other"]
    assert order[3:] == ["flood"] * 4


def test_one_session_cannot_hold_all_slots_and_its_queue_is_short() -> None:
    async def scenario() -> None:
        queue = FairQueue(slots=2, per_session=1, most_waiting=2)
        await queue.acquire("flood")
        waiting = [asyncio.create_task(queue.acquire("flood")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await queue.acquire("flood")
        await asyncio.wait_for(queue.acquire("user"), 1)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()  # a request that is given up leaves its place
        queue.release("flood")
        await asyncio.wait_for(waiting[1], 1)
        queue.release("flood")
        queue.release("user")
        for _ in range(3):  # every slot is back
            await asyncio.wait_for(queue.acquire("flood"), 1)
            queue.release("flood")

    asyncio.run(scenario())


def test_a_request_that_is_cancelled_with_its_turn_gives_the_slot_back() -> None:
    async def scenario() -> None:
        queue = FairQueue(slots=1, per_session=1, most_waiting=2)
        await queue.acquire("a")
        task = asyncio.create_task(queue.acquire("b"))
        await asyncio.sleep(0)
        queue.release("a")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(queue.acquire("c"), 1)

    asyncio.run(scenario())


async def status_of(app: Any, path: str, session: bytes) -> int:
    """The status of the answer to one request."""
    seen: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            seen.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "path": path, SESSION: Session(session, 1, 0.0), "method": "GET", "headers": []}
    await app(scope, receive, send)
    return seen[0]


def test_a_full_queue_answers_503_and_static_files_still_come() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def page(scope: Any, receive: Any, send: Any) -> None:
            if not scope["path"].startswith("/static/"):
                await ended.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        app = FairTurns(page, FairQueue(slots=2, per_session=1, most_waiting=1))
        first = [asyncio.create_task(status_of(app, "/", b"flood")) for _ in range(2)]
        await asyncio.sleep(0)
        assert await status_of(app, "/", b"flood") == 503
        assert await status_of(app, "/static/style.css", b"flood") == 200
        user = asyncio.create_task(status_of(app, "/", b"user"))
        await asyncio.sleep(0)
        ended.set()
        assert await asyncio.gather(user, *first) == [200] * 3

    asyncio.run(scenario())


def test_refusals_of_a_flood_are_delayed() -> None:
    async def scenario() -> float:
        refusals = Refusals("no", 403)
        started = time.monotonic()
        await asyncio.gather(*(status_of(refusals, "/", b"") for _ in range(200)))
        return time.monotonic() - started

    assert asyncio.run(scenario()) >= 0.5
