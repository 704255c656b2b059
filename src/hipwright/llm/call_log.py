"""The durable log of calls to language models: what was about to be sent, what came back, what was refused.

    log.admit(request)      may such a call be sent at all?
    log.reserve(reserved)   before an attempt is sent; durable on return
    log.release(reserved)   when it is certain that the attempt was not billed; durable on return
    log.settle(answer)      when its answer is there; durable on return
    log.refuse(refused)     when the call ended without one, for good

A call is found again by its request's key, so an answered call is never sent twice. What was reserved and never settled
may have been billed: `lost` names it, and a budget counts it at its reserved cost (docs/llm-budget.md).
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
    """A call that ended without an answer, and not for lack of a provider: over a limit, or refused by the provider.

    A replay raises the same error again.
    """

    request: Request
    error: Literal["OutOfBudget", "ProviderError"]
    message: str
    hint: str = ""

    @classmethod
    def of(cls, request: Request, error: OutOfBudget | ProviderError) -> RefusedCall:
        """What `error` made of `request`."""
        kind: Literal["OutOfBudget", "ProviderError"] = (
            "OutOfBudget" if isinstance(error, OutOfBudget) else "ProviderError"
        )
        return cls(request=request, error=kind, message=error.message, hint=error.hint)

    def exception(self) -> HipwrightError:
        """The error, to be raised again."""
        if self.error == "OutOfBudget":
            return OutOfBudget(self.message, hint=self.hint)
        return ProviderError(self.message, retryable=False, hint=self.hint)


class CallLog(Protocol):
    """What a log of calls does. Thread-safe; tests/llm/call_log_contract.py checks every one."""

    def find(self, key: str) -> ModelAnswer | None:
        """The answer to the request with this key, None when there is none yet."""

    def admit(self, request: Request) -> None:
        """Raise when this log lets no such call be sent, as a replay does. Before a model is opened or money held."""

    def reserve(self, reserved: Reserved) -> None:
        """Note an attempt before it is sent. Durable on return."""

    def release(self, reserved: Reserved) -> None:
        """Take the last reservation of this request back: the attempt was not billed. Durable on return."""

    def settle(self, answer: ModelAnswer) -> None:
        """Note an answer. Durable on return. ValueError when its request was never reserved."""

    def refuse(self, refused: RefusedCall) -> None:
        """Note that a call ended without an answer. Durable on return. A later answer to it counts instead."""

    def lost(self) -> list[Reserved]:
        """Attempts reserved and neither settled nor released, in the order of their reservation."""

    def answers(self) -> list[ModelAnswer]:
        """All answers, oldest first."""


class RecordedCallLog(CallLog, Protocol):
    """A log that can be replayed: it also knows the requests."""

    def reservations(self) -> list[Reserved]:
        """All attempts that were not released, oldest first."""

    def refusals(self) -> list[RefusedCall]:
        """The calls that ended without an answer, oldest first."""


class MemoryCallLog:
    """A log that lives as long as the process: for tests, and as a recording read from somewhere."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._requests: dict[str, Request] = {}
        self._order: list[tuple[str, Reserved]] = []
        self._answers: list[ModelAnswer] = []
        self._found: dict[str, ModelAnswer] = {}
        self._refused: dict[str, RefusedCall] = {}

    def find(self, key: str) -> ModelAnswer | None:
        """The first answer to the request with this key."""
        with self._mutex:
            self._refresh()
            return self._found.get(key)

    def admit(self, request: Request) -> None:
        """Every call may be sent."""

    def reserve(self, reserved: Reserved) -> None:
        """Note an attempt before it is sent."""
        with self._mutex:
            self._write(RESERVED, reserved.request, reserved.to_dict())
            self._reserve(reserved)

    def release(self, reserved: Reserved) -> None:
        """Take the last reservation of this request back; nothing happens when there is none."""
        with self._mutex:
            self._write(RELEASED, reserved.request, {"request": reserved.request.key})
            self._release(reserved.request.key)

    def settle(self, answer: ModelAnswer) -> None:
        """Note an answer. ValueError when its request was never reserved."""
        with self._mutex:
            self._refresh()
            request = self._requests.get(answer.request)
            if request is None:
                raise ValueError(f"call {answer.request} is settled but was never reserved")
            named = {"role": request.role, "index": request.index, "model": request.model}
            self._write(SETTLED, request, {**named, "answer": answer.to_dict()})
            self._settle(answer)

    def refuse(self, refused: RefusedCall) -> None:
        """Note that a call ended without an answer."""
        with self._mutex:
            self._write(REFUSED, refused.request, refused.to_dict())
            self._refused[refused.request.key] = refused

    def lost(self) -> list[Reserved]:
        """Attempts reserved and never settled. The answer to a request belongs to its last attempt."""
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

    def take(self, kind: str, data: dict[str, Any], where: str) -> None:
        """Take in one stored event of `KINDS`, others are left out. InfrastructureError when it cannot be read."""
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
        self._found.setdefault(answer.request, answer)  # the first stays: what was read once reads the same for ever

    def _write(self, kind: str, request: Request, data: dict[str, Any]) -> None:
        """Make one event durable; nothing is taken in when this fails."""

    def _refresh(self) -> None:
        """Take in what other holders of the same log wrote."""
