"""What passes between a command and the fleet: orders, how they ended, and what the seats run."""

from __future__ import annotations

from typing import Any

import msgspec

import hipwright
from hipwright.device.fingerprint import NodeFingerprint
from hipwright.errors import (
    BadInput,
    CandidateError,
    DeviceError,
    HipwrightError,
    InfrastructureError,
    ProviderError,
    TaskError,
    ToolchainError,
    WorkerError,
)
from hipwright.records import Fault, Record, Status


class Order(Record, frozen=True, kw_only=True):
    """One evaluation for the fleet. id: unique in a run; group: the task, whose reference stays warm.

    payload: JSON types.
    """

    id: str
    group: str = ""
    payload: dict[str, Any] = msgspec.field(default_factory=dict)


class SeatWork(Record, frozen=True, kw_only=True):
    """What the seats of a run do. factory: "module:function", called in each with `setup`; gives a SeatEvaluator.

    architecture: the resource that a seat has, e.g. "gfx942", "sm_90" or "cpu". device: the name of its GPU as
    `fleet up` labels it, "" for any: seats of several devices in one run would mix their times. gpu: whether a seat
    has a GPU of its own. depth: orders in a seat at once, of which `together` are evaluated while the others are built.
    seats: the most to use, 0 for all. attempts: of one order that meets faults of the machine. hang_s: the longest that
    an order may take. version: hipwright's, which must be the same in every seat.
    """

    factory: str
    setup: dict[str, Any] = msgspec.field(default_factory=dict)
    architecture: str = "cpu"
    device: str = ""
    gpu: bool = False
    together: int = 1
    depth: int = 2
    seats: int = 0
    attempts: int = 5
    hang_s: float = 600.0
    version: str = hipwright.__version__


class OrderError(Record, frozen=True, kw_only=True):
    """An error in another process. retryable: of a provider."""

    fault: Fault
    status: Status
    message: str
    hint: str = ""
    machine: bool = False

    @classmethod
    def of(cls, error: Exception) -> OrderError:
        """An error as a record; one that is not hipwright's own is a fault of the service."""
        if isinstance(error, HipwrightError):
            machine = isinstance(error, InfrastructureError)
            return cls(fault=error.fault, status=error.status, message=error.message, hint=error.hint, machine=machine)
        return cls(fault="service", status="unscorable", message=f"{type(error).__name__}: {error}")

    def error(self) -> HipwrightError:
        """The error to raise here: of the class of the same fault, so that only a candidate's own counts against it."""
        kind = _KINDS[self.fault]
        if self.fault == "service" and not self.machine:
            kind = HipwrightError
        return kind(self.message, hint=self.hint, status=self.status)


_KINDS: dict[Fault, type[HipwrightError]] = {
    "candidate": CandidateError,
    "task": TaskError,
    "toolchain": ToolchainError,
    "device": DeviceError,
    "provider": ProviderError,
    "service": WorkerError,
}


class OrderEnd(Record, frozen=True, kw_only=True):
    """How one order ended. value: JSON types; error: what ended it instead. seat: where. node: its fingerprint.

    seconds: spent in "build", "prepare" and "evaluate". attempts: how often it was begun.
    """

    id: str
    value: Any = None
    error: OrderError | None = None
    seat: str = ""
    node: NodeFingerprint | None = None
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    attempts: int = 1


class SeatReport(Record, frozen=True, kw_only=True):
    """What a seat's process says of itself once it is open. doubt: why its timings are not trusted, "" if they are."""

    node: NodeFingerprint
    pid: int
    doubt: str = ""


class SeatReply(Record, frozen=True, kw_only=True):
    """What a seat's process answers to one order. doubt: as above, seen after the evaluation, which then is void."""

    end: OrderEnd
    doubt: str = ""


def missing_ray(error: ImportError) -> BadInput:
    """The error of a command that needs Ray where it is not installed."""
    return BadInput(f"a fleet needs Ray, which is not installed ({error})", hint="pip install 'hipwright[fleet]'")
