"""A judge on another machine: what `hipwright train serve` runs there, seen from here as any judge.

The network's faults are the machine's: the Evaluation says so, and no answer is called wrong for them.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Program, content_key
from hipwright.train.records import Clock, Problem

AT_ONCE = 64
"""Requests under way."""
SECONDS = 900.0
"""One verdict, with everything that waits before it."""


class RemoteJudge:
    """A Judge over HTTP. url: of the server, e.g. "http://host:8417". BadInput on entering where none answers."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.device = ""
        self.clock: Clock = ""
        self._jobs: ThreadPoolExecutor | None = None
        self._known: dict[str, Future[Evaluation]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        try:
            told = _ask(f"{self.url}/judge", None, 10.0)
            self.device, self.clock = str(told["device"]), told["clock"]
        except (OSError, ValueError, KeyError) as error:
            hint = "`hipwright train serve` starts one"
            raise BadInput(f"no judge answers at {self.url}: {error}", hint=hint) from error
        self._jobs = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="remote judge")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._jobs is not None:
            self._jobs.shutdown(wait=True, cancel_futures=True)
            self._jobs = None

    def submit(self, problem: Problem, program: Program) -> Future[Evaluation]:
        """The evaluation to come. Equal programs are asked for once, unless the machine was at fault."""
        if self._jobs is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        key = content_key(problem.source, program.key)
        with self._lock:
            known = self._known.get(key)
            if known is not None and not (known.done() and known.result().fault not in (None, "candidate")):
                return known
            found = self._known[key] = self._jobs.submit(self._one, problem, program)
            return found

    def prefetch(self, problems: Sequence[Problem]) -> None:
        """The server opens its tasks as they come."""

    def _one(self, problem: Problem, program: Program) -> Evaluation:
        asked = {"problem": problem.to_dict(), "program": program.to_dict()}
        try:
            return Evaluation.from_dict(_ask(f"{self.url}/judge", asked, SECONDS))
        except (OSError, ValueError) as error:
            return Evaluation(
                task=content_key("problem", problem.source), program=program.key, status="unscorable", fault="service",
                message=f"{self.url}: {error}",
            )  # fmt: skip


def _ask(url: str, body: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
    """JSON there and back. OSError for what the network or the server refuses."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            plain = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise OSError(f"{error.code}: {error.read()[:200].decode(errors='replace')}") from error
    if not isinstance(plain, dict):
        raise ValueError("no JSON object")
    return plain
