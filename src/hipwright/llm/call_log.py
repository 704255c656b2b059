"""The durable log of calls to language models: attempts, answers and refusals.

    log.admit(request)      raises if such a call may not be sent
    log.reserve(reserved)   before an attempt is sent; durable on return
    log.release(reserved)   once the attempt is known to be unbilled; durable on return
    log.settle(answer)      once the answer is there; durable on return
    log.refuse(refused)     when the call ended without an answer, for good

Calls are found by their request's key, so an answered call is never sent twice. An attempt that was reserved and never
settled may have been billed: `lost` lists it, and a budget counts its reserved cost (docs/llm-budget.md).
"""

from __future__ import annotations

import threading
from typing import Any, Literal, Protocol

import msgspec

from hipwright.errors import HipwrightError, InfrastructureError, OutOfBudget, ProviderError
from hipwright.llm.records import ModelAnswer, Request, Reserved
from hipwright.records import Record

RESERVED, RELEASED, SETTLED, REFUSED = "call_reserved", "call_released", "call_settled", "call_refused"
KINDS = (RESERVED, RELEASED, SETTLED, REFUSED)


class RefusedCall(Record, frozen=True, kw_only=True):
    """A call that ended without an answer: over a limit, or refused by the provider. A replay raises the same error."""

    request: Request
    error: Literal["OutOfBudget", "ProviderError"]
    message: str
    hint: str = ""

    @classmethod
    def of(cls, request: Request, error: OutOfBudget | ProviderError) -> RefusedCall:
        """The record of a request that ended with `error`."""
        kind: Literal["OutOfBudget", "ProviderError"] = (
            "OutOfBudget" if isinstance(error, OutOfBudget) else "ProviderError"
        )
        return cls(request=request, error=kind, message=error.message, hint=error.hint)

    def exception(self) -> HipwrightError:
        """The error to raise again."""
        if self.error == "OutOfBudget":
            return OutOfBudget(self.message, hint=self.hint)
        return ProviderError(self.message, retryable=False, hint=self.hint)


class CallLog(Protocol):
    """A log of calls. Thread-safe; tests/llm/calls/call_log_contract.py checks every implementation."""

    def find(self, key: str) -> ModelAnswer | None:
        """Returns the answer to the request with this key, None if there is none yet."""

    def admit(self, request: Request) -> None:
        """Raises if this log does not allow the call (a replay). Called before a model is opened or money reserved."""

    def reserve(self, reserved: Reserved) -> None:
        """Records an attempt before it is sent. Durable on return."""

    def release(self, reserved: Reserved) -> None:
        """Removes the last reservation of this request: the attempt was not billed. Durable on return."""

    def settle(self, answer: ModelAnswer) -> None:
        """Records an answer. Durable on return. ValueError if its request was never reserved."""

    def refuse(self, refused: RefusedCall) -> None:
        """Records that a call ended without an answer. Durable on return. A later answer replaces it."""

    def lost(self) -> list[Reserved]:
        """Attempts that were neither settled nor released, in the order reserved."""

    def answers(self) -> list[ModelAnswer]:
        """All answers, oldest first."""


class RecordedCallLog(CallLog, Protocol):
    """A log that can be replayed: it also holds the requests."""

    def reservations(self) -> list[Reserved]:
        """All attempts that were not released, oldest first."""

    def refusals(self) -> list[RefusedCall]:
        """The calls that ended without an answer, oldest first."""


class MemoryCallLog:
    """A log in memory: the base of the other logs, a recording that was read, or for tests."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._requests: dict[str, Request] = {}
        self._order: list[tuple[str, Reserved]] = []
        self._answers: list[ModelAnswer] = []
        self._found: dict[str, ModelAnswer] = {}
        self._refused: dict[str, RefusedCall] = {}

    def find(self, key: str) -> ModelAnswer | None:
        """Returns the first answer to the request with this key."""
        with self._mutex:
            self._refresh()
            return self._found.get(key)

    def admit(self, request: Request) -> None:
        """Admits every call."""

    def reserve(self, reserved: Reserved) -> None:
        """Records an attempt before it is sent."""
        with self._mutex:
            self._write(RESERVED, reserved.request, reserved.to_dict())
            self._reserve(reserved)

    def release(self, reserved: Reserved) -> None:
        """Removes the last reservation of this request, if any."""
        with self._mutex:
            self._write(RELEASED, reserved.request, {"request": reserved.request.key})
            self._release(reserved.request.key)

    def settle(self, answer: ModelAnswer) -> None:
        """Records an answer. ValueError if its request was never reserved."""
        with self._mutex:
            self._refresh()
            request = self._requests.get(answer.request)
            if request is None:
                raise ValueError(f"call {answer.request} is settled but was never reserved")
            named = {"role": request.role, "index": request.index, "model": request.model}
            self._write(SETTLED, request, {**named, "answer": answer.to_dict()})
            self._settle(answer)

    def refuse(self, refused: RefusedCall) -> None:
        """Records that a call ended without an answer."""
        with self._mutex:
            self._write(REFUSED, refused.request, refused.to_dict())
            self._refused[refused.request.key] = refused

    def lost(self) -> list[Reserved]:
        """Attempts reserved and never settled. An answer belongs to the last attempt of its request."""
        with self._mutex:
            self._refresh()
            answered: dict[str, int] = {}
            for answer in self._answers:
                answered[answer.request] = answered.get(answer.request, 0) + 1
            lost: list[Reserved] = []
            for key, reserved in reversed(self._order):
                if answered.get(key, 0) > 0:
                    answered[key] -= 1
                else:
                    lost.append(reserved)
            return lost[::-1]

    def answers(self) -> list[ModelAnswer]:
        """All answers, oldest first."""
        with self._mutex:
            self._refresh()
            return list(self._answers)

    def reservations(self) -> list[Reserved]:
        """All attempts that were not released, oldest first."""
        with self._mutex:
            self._refresh()
            return [reserved for _, reserved in self._order]

    def refusals(self) -> list[RefusedCall]:
        """The calls that ended without an answer, oldest first; those answered later are left out."""
        with self._mutex:
            self._refresh()
            return [refused for key, refused in self._refused.items() if key not in self._found]

    def add(self, kind: str, data: dict[str, Any], where: str) -> None:
        """Adds one stored event; kinds not in `KINDS` are ignored. InfrastructureError if it cannot be read."""
        try:
            with self._mutex:
                if kind == RESERVED:
                    self._reserve(Reserved.from_dict(data))
                elif kind == RELEASED:
                    self._release(data["request"])
                elif kind == SETTLED:
                    self._settle(ModelAnswer.from_dict(data["answer"]))
                elif kind == REFUSED:
                    refused = RefusedCall.from_dict(data)
                    self._refused[refused.request.key] = refused
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise InfrastructureError(f"{where}: the call cannot be read: {error}") from error

    def _reserve(self, reserved: Reserved) -> None:
        key = reserved.request.key
        self._requests.setdefault(key, reserved.request)
        self._order.append((key, reserved))

    def _release(self, key: str) -> None:
        for place in range(len(self._order) - 1, -1, -1):
            if self._order[place][0] == key:
                del self._order[place]
                return

    def _settle(self, answer: ModelAnswer) -> None:
        self._answers.append(answer)
        self._found.setdefault(answer.request, answer)  # the first answer stays, so that repeated reads agree

    def _write(self, kind: str, request: Request, data: dict[str, Any]) -> None:
        """Stores one event durably; raises before the log changes. In memory: does nothing."""

    def _refresh(self) -> None:
        """Reads what other processes wrote. In memory: does nothing."""
