"""A judge on another machine, over HTTP (train/serve.py is the other end; docs/rewards.md).

Whatever the network does is a fault of the service: tried again, then told in the Evaluation, never a wrong kernel.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Program, content_key
from hipwright.train.records import Clock, Problem

CALLS = 64  # at once
RETRY = (408, 425, 429, 500, 502, 503, 504)
MOST_BYTES = 64 << 20  # of an answer


class RemoteJudge:
    """url: of `serve`, such as "http://node7:8765". token: as the server was given. timeout_s: of one program, waiting
    for its turn included. attempts: tries of a call. A context manager; entering asks what judges there, and raises
    InfrastructureError where nobody answers, BadInput where the answer is no judge's."""

    def __init__(self, url: str, *, token: str = "", timeout_s: float = 600.0, attempts: int = 4) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"not the address of a judge: {url!r}", hint="such as http://127.0.0.1:8765")
        self.url = url.rstrip("/")
        self.device = ""
        self.clock: Clock = ""
        self.identity: dict[str, Any] = {}
        self._token, self._timeout_s, self._attempts = token, timeout_s, max(1, attempts)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._pool is None:
            told = self._call("/identity", None)
            try:
                self.identity = dict(told)
                self.device, self.clock = str(told["device"]), cast("Clock", told["clock"])
            except (KeyError, TypeError, ValueError):
                raise BadInput(f"{self.url} is no judge: {str(told)[:100]}") from None
            self._pool = ThreadPoolExecutor(CALLS, thread_name_prefix="remote judge")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def submit(self, problem: Problem, program: Program) -> Future[Evaluation]:
        """The evaluation to come, of the other machine."""
        return self._opened().submit(self._judge, problem, program)

    def prefetch(self, problems: Sequence[Problem]) -> None:
        """Let the other machine open these; nobody waits for it, and it may fail."""

        def ask() -> None:
            with contextlib.suppress(InfrastructureError):
                self._call("/prefetch", {"problems": [problem.to_dict() for problem in problems]})

        self._opened().submit(ask)

    def _opened(self) -> ThreadPoolExecutor:
        if self._pool is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        return self._pool

    def _judge(self, problem: Problem, program: Program) -> Evaluation:
        try:
            told = self._call("/judge", {"problem": problem.to_dict(), "program": program.to_dict()})
            found = Evaluation.from_dict(told)
            if found.program != program.key:
                raise InfrastructureError(f"{self.url} judged another program")
        except (InfrastructureError, msgspec.ValidationError) as error:
            return Evaluation(
                task=content_key("problem", problem.source), program=program.key, status="unscorable",
                fault="service", message=str(error),
            )  # fmt: skip
        return found

    def _call(self, path: str, body: dict[str, Any] | None) -> Any:
        """One request, tried again where that may help. InfrastructureError."""
        why = ""
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(10.0, 0.25 * 2**attempt))
            try:
                return self._once(path, body)
            except urllib.error.HTTPError as error:
                why = f"{error.code} {error.reason}"
                if error.code not in RETRY:
                    break
            except (OSError, http.client.HTTPException, ValueError) as error:  # no connection, cut off, no JSON
                why = f"{type(error).__name__}: {error}"
        raise InfrastructureError(f"the judge at {self.url} does not answer: {why}", hint="is it running there?")

    def _once(self, path: str, body: dict[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
            return json.loads(answer.read(MOST_BYTES))
