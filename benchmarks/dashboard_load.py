"""How the dashboard answers one ordinary user while 200 clients hammer it and a request computes beside it.

    make bench-dashboard-load

A real dashboard is started on the loopback interface over a run on digits. The clients send one request after the
other, without a pause, over connections of their own; they have no session, share one, or have 16. A further process
computes with one thread, as a running request does. The ordinary user has a session of its own, opens one page after
the other with a pause of a fifth of a second, and tries again after an answer that says "busy". Reported are the
seconds until the user has the page (median and worst), the answers by status, and the memory of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

import remanence as rm
from remanence.training import RunSettings, train_run

PAGES = ("/", "/runs/0", "/runs/0/examples?page=3", "/runs/0/examples/7", "/requests", "/certificates")
ADDRESSES = (*PAGES, "/runs/0/examples/{}")
"""What the clients open: also pages with a figure that nobody has drawn yet."""
SCENARIOS = {"without a session": 0, "one session": 1, "16 sessions": 16}
PAUSE = 0.2
GIVE_UP = 60.0
COMPUTE = (
    "import torch; torch.set_num_threads(1); x = torch.rand(1000, 1000)\nwhile True: x = (x @ x).softmax(1)"
)


@contextmanager
def served(run: Path) -> Iterator[tuple[str, int]]:
    """A dashboard over the run: its address with the token, and its process id."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "remanence", "dashboard", str(run), "--port", "19742"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = ""
        while not (match := re.search(r"http://\S+", said)):
            said += server.stdout.readline()
        try:
            yield match[0], server.pid
        finally:
            server.terminate()


@contextmanager
def computing() -> Iterator[None]:
    """A process that computes meanwhile."""
    with subprocess.Popen([sys.executable, "-c", COMPUTE]) as process:
        try:
            yield
        finally:
            process.kill()


def cookie(address: str) -> str:
    """Exchange the token for a session; the header that carries it."""
    answer = httpx.get(address, timeout=GIVE_UP)
    return "; ".join(f"{name}={value}" for name, value in answer.cookies.items())


async def hammer(port: int, cookies: str, until: float, answers: Counter[str], first: int) -> None:
    """One client: the next request as soon as the last is answered."""
    count = first
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while time.monotonic() < until:
                count += 1
                path = ADDRESSES[count % len(ADDRESSES)].format(count % 1200)
                head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookies}\r\n\r\n"
                writer.write(head.encode())
                header = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), GIVE_UP)
                length = re.search(rb"content-length: (\d+)", header.lower())
                await asyncio.wait_for(reader.readexactly(int(length[1]) if length else 0), GIVE_UP)
                answers[header.split(b" ")[1].decode()] += 1
        except TimeoutError:
            answers["timed out"] += 1
        except (OSError, asyncio.IncompleteReadError):
            answers["closed"] += 1
            await asyncio.sleep(0.01)


def flood(port: int, sessions: list[str], clients: int, seconds: float, results: Any) -> None:
    """All clients, in a process of their own."""
    answers: Counter[str] = Counter()

    async def all_clients() -> None:
        until = time.monotonic() + seconds
        cookies = sessions or [""]
        tasks = (hammer(port, cookies[i % len(cookies)], until, answers, i) for i in range(clients))
        await asyncio.gather(*tasks)

    asyncio.run(all_clients())
    results.put(dict(answers))


def open_pages(base: str, cookies: str, seconds: float) -> dict[str, Any]:
    """What the ordinary user sees."""
    times, busy, until = [], 0, time.monotonic() + seconds
    with httpx.Client(base_url=base, headers={"Cookie": cookies}, timeout=GIVE_UP) as client:
        while time.monotonic() < until:
            started = time.perf_counter()
            while (answer := client.get(PAGES[len(times) % len(PAGES)])).status_code == 503:
                busy += 1
                time.sleep(PAUSE)
            answer.raise_for_status()
            times.append(time.perf_counter() - started)
            time.sleep(PAUSE)
    return {
        "pages": len(times),
        "busy_answers": busy,
        "median_seconds": round(statistics.median(times), 3),
        "worst_seconds": round(max(times), 3),
    }


def resident(process: int) -> float:
    """Megabytes of a process in memory, now."""
    text = Path(f"/proc/{process}/status").read_text()
    return round(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024, 1)


def measure(address: str, process: int, sessions: int, clients: int, seconds: float) -> dict[str, Any]:
    """One scenario."""
    parts = urlsplit(address)
    base = f"{parts.scheme}://{parts.netloc}"
    cookies = [cookie(address) for _ in range(sessions)]
    user, results = cookie(address), multiprocessing.Queue()
    before = resident(process)
    arguments = (parts.port, cookies, clients, seconds + 2, results)
    hammering = multiprocessing.Process(target=flood, args=arguments)
    if clients:
        hammering.start()
        time.sleep(1)
    seen = open_pages(base, user, seconds)
    if clients:
        seen["answers_to_the_clients"] = results.get(timeout=2 * GIVE_UP)
        hammering.join()
    return seen | {"memory_mb_before": before, "memory_mb_after": resident(process)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200, choices=range(1, 501), metavar="1-500")
    parser.add_argument("--seconds", type=int, default=60, choices=range(1, 301), metavar="1-300")
    parser.add_argument("--work", type=Path, default=Path(".bench/dashboard-load"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    run = options.work / "run"
    if not (run / "remanence.json").exists():
        train_run(RunSettings("digits", "mlp", rm.Recipe(epochs=2, learning_rate=0.1), record=10), run)
    with served(run) as (address, process), computing():
        scenarios = {"no other client": measure(address, process, 0, 0, min(options.seconds, 10))}
        for name, sessions in SCENARIOS.items():
            scenarios[name] = measure(address, process, sessions, options.clients, options.seconds)
            print(name, json.dumps(scenarios[name]), flush=True)
    result = {
        "clients": options.clients,
        "seconds": options.seconds,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "scenarios": scenarios,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "dashboard_load.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
