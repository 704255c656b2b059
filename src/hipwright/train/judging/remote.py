"""A judge on another machine: the client of `hipwright train serve` (train/judging/serve.py).

Network errors are faults of the service: requests are retried under one idempotency key, so that a program whose reply
was lost is not judged again, and then the Evaluation is unscorable. A server that is full (429, 503 with Retry-After)
is asked again when it says, as long as there is time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec

from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Program, content_key
from hipwright.train.records import Clock, TrainingProblem

MAX_REQUESTS = 64
"""Concurrent requests."""
FULL_STATUS = (429, 503)
RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
MAX_BYTES = 64 << 20  # of a response


class RemoteJudge:
    """A judge over HTTP.

    url: of the server, such as "http://host:8417". token: the server's. timeout_s: of one verdict, with the time in
    the server's queue. attempts: of a request. Raises BadInput on entering where no judge answers.
    """

    def __init__(self, url: str, *, token: str = "", timeout_s: float = 900.0, attempts: int = 3) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"not the address of a judge: {url!r}", hint="such as http://127.0.0.1:8417")
        self.url = url.rstrip("/")
        self.device = ""
        self.clock: Clock = ""
        self._token, self._timeout_s, self._attempts = token, timeout_s, max(1, attempts)
        self._jobs: ThreadPoolExecutor | None = None
        self._known: dict[str, Future[Evaluation]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._jobs is None:
            try:
                about = self._request("/judge", None, 1, 10.0)
                self.device, self.clock = str(about["device"]), msgspec.convert(about["clock"], Clock)
            except (InfrastructureError, KeyError, msgspec.ValidationError) as error:
                raise BadInput(
                    f"no judge answers at {self.url}: {error}", hint="`hipwright train serve` starts one"
                ) from error
            self._jobs = ThreadPoolExecutor(MAX_REQUESTS, thread_name_prefix="remote judge")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._jobs is not None:
            self._jobs.shutdown(wait=True, cancel_futures=True)
            self._jobs = None

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The future evaluation. Verdicts are cached, but not faults of the machine."""
        key = content_key(problem.source, program.key)
        with self._lock:
            known = self._known.get(key)
            if known is None or (known.done() and not _is_verdict(known)):
                known = self._known[key] = self._opened().submit(self._judge, problem, program)
            return known

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Asks the server to open these tasks, in the background; errors are ignored."""

        def ask() -> None:
            with contextlib.suppress(InfrastructureError):
                self._request("/prefetch", {"problems": [problem.to_dict() for problem in problems]}, 1, 60.0)

        self._opened().submit(ask)

    def _opened(self) -> ThreadPoolExecutor:
        if self._jobs is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        return self._jobs

    def _judge(self, problem: TrainingProblem, program: Program) -> Evaluation:
        body = {"problem": problem.to_dict(), "program": program.to_dict()}
        try:
            found = Evaluation.from_dict(self._request("/judge", body, self._attempts, self._timeout_s))
            if found.program != program.key:
                raise InfrastructureError(f"{self.url} judged another program")
        except (InfrastructureError, msgspec.ValidationError) as error:
            return Evaluation(
                task=content_key("problem", problem.source),
                program=program.key,
                status="unscorable",
                fault="service",
                message=str(error),
            )
        return found

    def _request(self, path: str, body: dict[str, Any] | None, attempts: int, timeout_s: float) -> dict[str, Any]:
        """Sends a JSON object and returns the JSON object of the response; GET without a body.

        Retries where that may help. Raises InfrastructureError.
        """
        why, attempt, key, end = "", 0, uuid4().hex, time.monotonic() + timeout_s
        while attempt < attempts:
            wait_s = min(10.0, 0.25 * 2**attempt)
            try:
                return self._send(path, body, timeout_s, key)
            except urllib.error.HTTPError as error:
                why = f"{error.code}: {error.read()[:200].decode(errors='replace')}"
                if error.code not in RETRIED_STATUS:
                    break
                again = error.headers.get("Retry-After", "")
                if error.code in FULL_STATUS and again.isdigit() and time.monotonic() + int(again) < end:
                    time.sleep(int(again) * random.uniform(0.5, 1.0))  # not all clients at once
                    continue
            except (OSError, http.client.HTTPException, ValueError) as error:  # no connection, a short read, no JSON
                why = f"{type(error).__name__}: {error}"
            attempt += 1
            if attempt < attempts:
                time.sleep(wait_s)
        raise InfrastructureError(f"{self.url}{path} failed: {why}", hint="is it running there?")

    def _send(self, path: str, body: dict[str, Any] | None, timeout_s: float, key: str) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            plain = json.loads(answer.read(MAX_BYTES))
        if not isinstance(plain, dict):
            raise ValueError("no JSON object")
        return plain


def _is_verdict(known: Future[Evaluation]) -> bool:
    return not known.cancelled() and known.result().fault in (None, "candidate")
