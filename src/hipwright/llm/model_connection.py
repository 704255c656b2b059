"""The state of one model's provider: concurrency limit, requested pauses, and the start of an outage."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hipwright.errors import ProviderError
from hipwright.llm.call_failure import CallFailure
from hipwright.llm.models import open_model
from hipwright.llm.specs import ModelSpec
from hipwright.llm.throttle import Throttle, asked_wait, backoff

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class ModelConnection:
    """Schedules attempts to one model. Thread-safe. clock: in seconds; outage_seconds: the longest wait."""

    def __init__(
        self, spec: ModelSpec, concurrency: int, outage_seconds: float, clock: Callable[[], float], rng: random.Random
    ) -> None:
        self.spec = spec
        self.opened: Model | None = None
        self.broke_bound = ""
        self._throttle = Throttle(concurrency)
        self._outage, self._clock, self._rng = outage_seconds, clock, rng
        self._turn = threading.Condition()
        self._asking = 0
        self._failing_since: float | None = None
        self._not_before = 0.0
        self._away, self._away_until, self._times_away = "", 0.0, 0

    def model(self) -> Model:
        """The model, opened on first use. Raises BadInput."""
        with self._turn:
            if self.opened is None:
                self.opened = open_model(self.spec)
            return self.opened

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Marks a call as in progress, waits included. Without any, no outage time accumulates."""
        with self._turn:
            self._asking += 1
        try:
            yield
        finally:
            with self._turn:
                self._asking -= 1
                if not self._asking:
                    self._failing_since = None

    def enter(self, closing: threading.Event, sleep: Callable[[float], object]) -> int:
        """Waits until an attempt may begin; returns its epoch, for `failed`. ProviderError once `closing` is set."""
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._throttle.free or closing.is_set())
                if closing.is_set():
                    raise ProviderError("the client of the language models is closed", retryable=True)
                early = self._not_before - self._clock()
                if early <= 0:
                    return self._throttle.begin()
            sleep(asked_wait(early, 0, self._rng))

    def leave_alone(self, why: str, seconds: float) -> None:
        """Has the model asked nothing for so many seconds; twice as many each time that no answer came between."""
        with self._turn:
            self._away, self._away_until = why, self._clock() + seconds * 2**self._times_away
            self._times_away += 1

    def left_alone(self) -> str:
        """Why the model is asked nothing now; empty where it may be asked."""
        with self._turn:
            return self._away if self._clock() < self._away_until else ""

    def leave(self) -> None:
        """Ends an attempt."""
        with self._turn:
            self._throttle.end()
            self._turn.notify_all()

    def wake(self) -> None:
        """Wakes the threads in `enter`, so that they check `closing`."""
        with self._turn:
            self._turn.notify_all()

    def answered(self) -> None:
        """Records an answered attempt."""
        with self._turn:
            self._failing_since, self._times_away = None, 0
            self._throttle.succeeded()
            self._turn.notify_all()

    def failed(self, failure: CallFailure, failures: int, epoch: int) -> tuple[float, float]:
        """Records a failed attempt; returns (seconds since all attempts fail, seconds until this call's next one)."""
        with self._turn:
            now = self._clock()
            if failure.crowded:
                self._throttle.overloaded(epoch)
            if not failure.retryable:
                self._failing_since = None  # the provider responds
            elif self._failing_since is None:
                self._failing_since = now
            failing = 0.0 if self._failing_since is None else now - self._failing_since
            if failure.wait is None or failure.wait > self._outage:
                return failing, backoff(failures, self._rng)
            self._not_before = max(self._not_before, now + failure.wait)  # applies to every call to this model
            return failing, asked_wait(failure.wait, failures, self._rng)
