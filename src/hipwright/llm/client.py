"""The client of language models: retries, at most one answer per request, spending within a budget.

A call is found in the log, or else reserved (budget, then log), sent, streamed and settled. All retries are here. The
caller's thread waits, reserves and settles; one background thread runs the event loop that streams.
"""

from __future__ import annotations

import concurrent.futures
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipwright.errors import HipwrightError, OutOfBudget, ProviderError
from hipwright.events import Listener, silent
from hipwright.llm.attempt import AttemptResult, attempt
from hipwright.llm.call_failure import CallFailure, failure_of
from hipwright.llm.call_log import CallLog, RefusedCall
from hipwright.llm.cost.budget import Budget, BudgetReservation
from hipwright.llm.cost.prices import Prices
from hipwright.llm.event_loop import EventLoopThread
from hipwright.llm.model_connection import ModelConnection
from hipwright.llm.models import close_model
from hipwright.llm.records import ModelAnswer, Request, Reserved, Usage
from hipwright.llm.secrets import redact, redact_record
from hipwright.llm.specs import parse_spec

if TYPE_CHECKING:
    from pydantic_ai.models import Model

MAX_LOST_ATTEMPTS = 8
"""Attempts of one call that may have been billed without an answer, before the call is abandoned."""
MAX_GARBAGE_ANSWERS = 5
"""Invalid answers to one call (a proxy's page, a truncated stream) before the call is abandoned."""
AWAY_SECONDS = {"outage": 120.0, "garbage": 120.0, "network": 120.0, "crowded": 120.0, "quota": 600.0}
"""How long a model is left alone after a call that was given up, by the kind of its last failure."""
FOR_GOOD = ("key", "model", "package")
"""Kinds of failure that no later call is without."""


@dataclass
class _Call:
    """One call in progress. failures: attempts without an answer; lost: those that may have been billed."""

    request: Request
    began: float
    failures: int = 0
    lost: int = 0
    garbage: int = 0
    reservation: BudgetReservation | None = None
    reserved: Reserved | None = None


class Client:
    """Asks models. Thread-safe.

    log, budget: owned by the caller; a resumed run passes `Budget.resumed`. concurrency: open calls to one model, fewer
    while its provider is overloaded. idle_seconds: the longest silence within an answer; first_seconds: before its
    start (default 5 * idle_seconds), while the model queues or reasons. outage_seconds: how long a model may fail all
    calls before it is given up. pauses: whether the caller pauses then and asks again later; else the call has ended
    for good, is logged as refused, and the model is left alone for a while, so that whoever goes on without it does not
    wait again. listener: gets "llm_retry", "llm_answered" and "llm_away" from any thread. clock, sleep, rng: for tests.
    """

    def __init__(
        self,
        log: CallLog,
        budget: Budget,
        *,
        listener: Listener = silent,
        concurrency: int = 8,
        idle_seconds: float = 60.0,
        first_seconds: float | None = None,
        outage_seconds: float = 600.0,
        pauses: bool = True,
        prices: Prices | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._log, self._budget, self._prices = log, budget, prices or Prices()
        self._listener, self._concurrency = listener, max(1, concurrency)
        self._idle, self._first = idle_seconds, first_seconds or 5 * idle_seconds
        self._outage, self._clock, self._rng = outage_seconds, clock, rng or random.Random()
        self._pauses = pauses
        self._closing = threading.Event()
        self._sleep = sleep or (lambda seconds: self._closing.wait(seconds))
        self._lock = threading.Lock()
        self._connections: dict[str, ModelConnection] = {}
        self._loop: EventLoopThread | None = None
        self._call_ended = threading.Condition()
        self._in_flight: set[str] = set()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def ask(self, request: Request) -> ModelAnswer:
        """Returns the answer to a request from the log, or else from its model. Blocks and retries.

        Raises OutOfBudget before an attempt that could exceed a limit, BadInput for a model that cannot be opened, and
        ProviderError: retryable if the provider is unavailable (the run pauses), not if it refuses the request.
        """
        request = redact_record(request)  # secrets are neither sent nor logged
        with self._exclusive(request.key):
            found = self._log.find(request.key)
            if found is None:
                self._log.admit(request)  # a replay raises here, before a model is opened or a key needed
                found = self._ask(request)
            return found

    def ask_all(self, requests: Iterable[Request]) -> list[ModelAnswer | HipwrightError]:
        """Sends several requests concurrently; returns each answer or error in its request's place."""
        requests = list(requests)
        if not requests:
            return []

        def one(request: Request) -> ModelAnswer | HipwrightError:
            try:
                return self.ask(request)
            except HipwrightError as error:
                return error

        workers = min(len(requests), self._concurrency * len({request.model for request in requests}))
        with concurrent.futures.ThreadPoolExecutor(workers, "hipwright-ask") as pool:
            return list(pool.map(one, requests))

    def close(self) -> None:
        """Cancels calls in progress and closes the connections. The log and the budget stay open."""
        self._closing.set()
        with self._lock:
            loop, self._loop = self._loop, None
            connections = list(self._connections.values())
        for connection in connections:
            connection.wake()

        async def last() -> None:
            for connection in connections:
                if connection.opened is not None:
                    await close_model(connection.opened)

        if loop is not None:
            loop.close(last())

    # ---------------------------------------------------------------- one call

    def _ask(self, request: Request) -> ModelAnswer:
        connection = self._connection(request.model)
        model = connection.model()
        call = _Call(request, self._clock())
        try:
            with connection.asking():
                if why := connection.left_alone():
                    raise ProviderError(why, retryable=True)
                return self._until_answered(connection, model, call)
        except (OutOfBudget, ProviderError) as error:
            ended = not (self._pauses or self._closing.is_set())
            if ended and isinstance(error, ProviderError):
                self._leave_alone(connection, error)
            if ended or not getattr(error, "retryable", False):
                self._log.refuse(RefusedCall.of(request, error))
            raise
        finally:
            if call.reservation is not None and call.reserved is not None:  # the last attempt was refused unbilled
                self._budget.cancel(call.reservation)
                self._log.release(call.reserved)

    def _until_answered(self, connection: ModelConnection, model: Model, call: _Call) -> ModelAnswer:
        while True:
            epoch = connection.enter(self._closing, self._sleep)
            try:
                if call.reservation is None:
                    self._reserve(connection, call)
                result = self._send(model, call)
            except HipwrightError:
                raise
            except Exception as error:
                failure = failure_of(error, connection.spec)
            else:
                return self._settle(connection, call, result)
            finally:
                connection.leave()
            self._sleep(self._next_wait(connection, call, failure, epoch))

    def _send(self, model: Model, call: _Call) -> AttemptResult:
        """Makes one attempt. An interrupted one counts as lost: it may have been billed."""
        try:
            return self._running().run(attempt(model, call.request, first_seconds=self._first, idle_seconds=self._idle))
        except BaseException as error:
            if not isinstance(error, Exception):
                self._lose(call)
            raise

    def _reserve(self, connection: ModelConnection, call: _Call) -> None:
        limits = self._budget.limits
        if connection.broke_bound and (limits.usd is not None or limits.tokens is not None):
            raise ProviderError(connection.broke_bound, hint="name another model by --llm", evidence={"kind": "bound"})
        usd, tokens, _ = self._prices.bound(call.request.model, call.request.messages, call.request.max_tokens)
        reservation = self._budget.reserve(usd, tokens)
        reserved = Reserved(request=call.request, cost_usd=usd, tokens=tokens)
        try:
            self._log.reserve(reserved)
        except BaseException:
            self._budget.cancel(reservation)
            raise
        call.reservation, call.reserved = reservation, reserved

    def _lose(self, call: _Call) -> None:
        """Counts an attempt that may have been billed at its reserved cost; the next attempt reserves again."""
        assert call.reservation is not None and call.reserved is not None
        reservation, call.reservation = call.reservation, None
        self._budget.settle(reservation, call.reserved.cost_usd, call.reserved.tokens)
        call.lost += 1

    def _settle(self, connection: ModelConnection, call: _Call, result: AttemptResult) -> ModelAnswer:
        assert call.reservation is not None and call.reserved is not None
        # without a token count, the whole reservation counts as used
        out = call.request.max_tokens
        usage = result.usage or Usage(input_tokens=call.reserved.tokens - out, output_tokens=out)
        cost, priced = self._prices.price(call.request.model, usage)
        answer = ModelAnswer(
            request=call.request.key,
            text=redact(result.text),
            finish=result.finish,
            usage=usage,
            cost_usd=cost,
            priced=priced,
            model=result.model,
            seconds=round(self._clock() - call.began, 3),
            attempts=call.failures + 1,
        )
        reservation, call.reservation = call.reservation, None
        tokens = usage.input_tokens + usage.output_tokens
        self._budget.settle(reservation, cost, tokens)
        self._log.settle(answer)
        if reservation.overshot:
            most = f"a call that may take {call.reserved.tokens} tokens and ${call.reserved.cost_usd:.6f} at most"
            connection.broke_bound = f"{connection.spec.name} counted {tokens} tokens (${cost:.6f}) for {most}"
        connection.answered()
        self._listener("llm_answered", {**_named(call), "tokens": tokens, "cost_usd": cost})
        return answer

    # ---------------------------------------------------------------- failures

    def _next_wait(self, connection: ModelConnection, call: _Call, failure: CallFailure, epoch: int) -> float:
        """Returns the seconds to wait before the next attempt. Raises ProviderError if there is none."""
        if failure.billed:
            self._lose(call)
        call.failures += 1
        call.garbage += failure.kind == "garbage"
        failing, wait = connection.failed(failure, call.failures, epoch)
        self._give_up(connection.spec.name, call, failure, failing)
        self._listener("llm_retry", {**_named(call), "why": failure.message, "wait": wait})
        return wait

    def _leave_alone(self, connection: ModelConnection, error: ProviderError) -> None:
        """Has the model asked nothing for a while, where its failure says that the next call would fail too."""
        kind = error.evidence.get("kind", "")
        seconds = float("inf") if kind in FOR_GOOD else AWAY_SECONDS.get(kind, 0.0)
        if seconds and not connection.left_alone():
            connection.leave_alone(error.message, seconds)
            told = {"model": connection.spec.name, "why": error.message, "hint": error.hint, "seconds": seconds}
            self._listener("llm_away", told)

    def _give_up(self, name: str, call: _Call, failure: CallFailure, failing: float) -> None:
        """Raises ProviderError if another attempt is pointless."""
        evidence = {"kind": failure.kind, "attempts": call.failures, "lost": call.lost, **failure.evidence}
        if self._closing.is_set():
            raise ProviderError(f"{name}: closed while it waited for an answer", retryable=True, evidence=evidence)
        if not failure.retryable:
            # retryable after the account is topped up
            resumable = failure.kind == "quota"
            raise ProviderError(f"{name}: {failure.message}", retryable=resumable, hint=failure.hint, evidence=evidence)
        requested = failure.wait or 0.0
        if not self._pauses:
            failing = max(failing, self._clock() - call.began)  # a silent server has failed since it was asked
        if failing >= self._outage or requested > self._outage:
            why = (
                f"asks to wait {requested:.0f} s"
                if requested > self._outage
                else f"no call answered for {failing:.0f} s"
            )
            later = "the run goes on by `hipwright resume`" if self._pauses else ""
            hint = "; ".join(part for part in (failure.hint, later) if part)
            evidence["kind"] = "outage"
            raise ProviderError(f"{name}: {why}; last: {failure.message}", retryable=True, hint=hint, evidence=evidence)
        overdue = self._clock() - call.began > 2 * self._outage
        if overdue or call.garbage >= MAX_GARBAGE_ANSWERS or call.lost >= MAX_LOST_ATTEMPTS:
            why = f"given up after {call.failures} attempts; last: {failure.message}"
            raise ProviderError(f"{name}: {why}", hint=failure.hint, evidence=evidence)

    def _connection(self, model: str) -> ModelConnection:
        with self._lock:
            if model not in self._connections:
                spec = parse_spec(model)
                self._connections[model] = ModelConnection(
                    spec, self._concurrency, self._outage, self._clock, self._rng
                )
            return self._connections[model]

    def _running(self) -> EventLoopThread:
        with self._lock:
            if self._closing.is_set():
                raise ProviderError("the client of the language models is closed", retryable=True)
            if self._loop is None:
                self._loop = EventLoopThread()
            return self._loop

    @contextmanager
    def _exclusive(self, key: str) -> Iterator[None]:
        """Serialises calls with equal keys: the second one finds the first one's answer in the log."""
        with self._call_ended:
            self._call_ended.wait_for(lambda: key not in self._in_flight)
            self._in_flight.add(key)
        try:
            yield
        finally:
            with self._call_ended:
                self._in_flight.remove(key)
                self._call_ended.notify_all()


def _named(call: _Call) -> dict[str, Any]:
    named = {name: getattr(call.request, name) for name in ("role", "number", "index", "model")}
    return {**named, "attempts": call.failures + 1, "lost": call.lost}
