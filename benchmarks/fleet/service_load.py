"""The scoring service under mixed clients: good, bad, oversized, unauthenticated, slow and cut off. Needs no GPU.

    python -m benchmarks service-load --minutes 5 --per-minute 10000

The service is a process of its own with a judge that takes 20 ms in 16 threads. Clients are one process with many
sockets. Good clients send every tenth request twice under one key. Prints what each kind got, how many good requests
had no verdict, how many bad ones had one, how often a program was judged twice, and the service's memory at the start,
at most and at the end. Exit code 1 where a good request was lost, a bad one served or one judged twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hipwright.records import Program
from hipwright.train.records import TrainingProblem
from hipwright.train.service.limits import ServiceLimits

TOKEN = "a token of the load test"
TASK = TrainingProblem(name="load", source="import torch").to_dict()
SHARES = {"good": 0.7, "bad": 0.08, "large": 0.04, "unknown": 0.08, "slow": 0.02, "cut": 0.08}
ROOT = Path(__file__).resolve().parents[2]
PROCESS = ROOT / "benchmarks/fleet/service_process.py"
PATIENCE_S = 60.0
GOOD_PATIENCE_S = 300.0  # a third of what RemoteJudge waits for a verdict


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--per-minute", type=int, default=10_000)
    parser.add_argument("--queue", type=int, default=64)
    parser.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Runs the measurement."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    limits = ServiceLimits(queue=options.queue, per_minute=0, body_s=5.0)
    command = [sys.executable, str(PROCESS), str(port), TOKEN, "16", limits.to_json()]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        load = Load(port, process.pid, options)
        asyncio.run(load.run())
        process.terminate()
        judged = int((process.communicate(timeout=90)[0] or "-1").split()[-1])
    finally:
        process.kill()
    figures = load.figures(judged)
    print(json.dumps(figures) if options.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 1 if figures["good without a verdict"] or figures["bad with a verdict"] or figures["judged twice"] else 0


class Load:
    """The clients and what they got."""

    def __init__(self, port: int, pid: int, options: argparse.Namespace) -> None:
        self._port, self._pid, self._options = port, pid, options
        self._got: Counter[tuple[str, str]] = Counter()
        self._memory: list[int] = []
        self._again = 0
        self._seconds: list[float] = []

    async def run(self) -> None:
        """Sends requests at their rate until the time is over, and waits for the last ones."""
        await self._up()
        draw, running = random.Random(0), set[asyncio.Task[None]]()
        begun, number = time.monotonic(), 0
        while (now := time.monotonic() - begun) < self._options.minutes * 60:
            while number < now * self._options.per_minute / 60:
                kind = draw.choices(list(SHARES), list(SHARES.values()))[0]
                task = asyncio.ensure_future(self._client(kind, number))
                running.add(task)
                task.add_done_callback(running.discard)
                number += 1
            if not self._memory or now > len(self._memory):
                self._memory.append(_resident(self._pid))
            await asyncio.sleep(0.01)
        await asyncio.gather(*running)
        self._memory.append(_resident(self._pid))

    async def _up(self) -> None:
        while True:
            try:
                if await self._send(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") == 200:
                    return
            except OSError:
                await asyncio.sleep(0.1)

    async def _client(self, kind: str, number: int) -> None:
        begun = time.monotonic()
        try:
            if kind == "good":
                got = await self._good(number)
                self._seconds.append(time.monotonic() - begun)
            else:
                got = await self._other(kind, number)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            got = type(error).__name__
        self._got[kind, str(got)] += 1

    async def _good(self, number: int) -> int:
        """A request that is sent until it has a verdict, every tenth twice at once."""
        data = _request(_body(number), key=f"k{number}")
        end, wait_s = time.monotonic() + GOOD_PATIENCE_S, 1.0
        while True:
            try:
                if number % 10 == 0:
                    got = min(await asyncio.gather(self._send(data), self._send(data)))
                else:
                    got = await self._send(data)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                got = 0
            if got == 200 or time.monotonic() > end:
                return got
            self._again += 1
            await asyncio.sleep(random.uniform(0.5, 1.0) * wait_s)
            wait_s = min(30.0, 2 * wait_s)

    async def _other(self, kind: str, number: int) -> int:
        body = _body(number)
        if kind == "bad":
            return await self._send(_request(random.choice([b"{", b"[1]", body[:-9], b'{"problem": 3}'])))
        if kind == "large":
            return await self._send(_request(body + b" " * (3 << 20)))
        if kind == "unknown":
            return await self._send(_request(body, token="guessed"))
        whole = _request(body)
        if kind == "cut":
            return await self._send(whole[: random.randrange(1, len(whole) - 1)], cut=True)
        return await self._send(whole, every_s=1.0)

    async def _send(self, data: bytes, *, cut: bool = False, every_s: float = 0.0) -> int:
        """The status of a request's reply; 0 where the client was cut off. every_s: between two bytes of its body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                if every_s:
                    head, _, body = data.partition(b"\r\n\r\n")
                    writer.write(head + b"\r\n\r\n")
                    for byte in body[:12]:
                        writer.write(bytes([byte]))
                        await asyncio.sleep(every_s)
                        if reader.at_eof() or writer.transport.is_closing() or len(reader._buffer):  # type: ignore[attr-defined]
                            break
                else:
                    writer.write(data)
                    if cut:
                        await writer.drain()
                        return 0
                line = await reader.readline()
                return int(line.split()[1]) if line else 0
        finally:
            writer.transport.abort() if cut else writer.close()

    def figures(self, judged: int) -> dict[str, Any]:
        """The figures. judged: programs that reached the judge."""
        good = sum(count for (kind, _), count in self._got.items() if kind == "good")
        served = self._got["good", "200"]
        seconds = sorted(self._seconds)
        return {
            "minutes": self._options.minutes,
            "requests": sum(self._got.values()),
            "what each kind got": {f"{kind} {got}": count for (kind, got), count in sorted(self._got.items())},
            "good without a verdict": good - served,
            "bad with a verdict": sum(n for (kind, got), n in self._got.items() if kind != "good" and got == "200"),
            "judged twice": judged - served,
            "good sent again after 429, 503 or a lost connection": self._again,
            "seconds of a good request, median and 99 %": [
                round(seconds[int(len(seconds) * share)], 3) for share in (0.5, 0.99) if seconds
            ],
            "service memory in MB, start, most, end": [
                round(value / 1e6, 1) for value in (self._memory[0], max(self._memory), self._memory[-1])
            ],
        }


def _body(number: int) -> bytes:
    program = Program(text=f"0.02 {number}").to_dict()
    return json.dumps({"problem": TASK, "program": program}).encode()


def _request(body: bytes, *, token: str = TOKEN, key: str = "") -> bytes:
    head = f"POST /judge HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n"
    head += (f"Idempotency-Key: {key}\r\n" if key else "") + "Connection: close\r\n\r\n"
    return head.encode() + body


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
