"""Every error that hipwright raises deliberately, and whose fault each one is.

    HipwrightError
    ├── BadInput            the user's file or option; exit 2
    ├── TaskError           the task file's own code fails; exit 2
    ├── CandidateError      the program is wrong; becomes a Verdict, exit 1
    │   ├── ProgramError    the plan does not parse or check; has a line
    │   │   └── GuardFailed an `assert` of the plan: it does not support this shape
    │   └── CompileError    the HIP source does not compile
    ├── InfrastructureError not the candidate's fault; never a score; exit 3
    │   ├── ToolchainError  a compiler is missing or broken
    │   ├── SandboxMissing  no sandbox here, and --unsafe was not given
    │   ├── DeviceError     a device failed
    │   ├── ProviderError   a model's provider fails, refuses the key or is unavailable
    │   ├── FleetAway       no seat of the fleet took the work; ends the command
    │   └── WorkerError     a worker process of hipwright died
    └── OutOfBudget         a call would exceed a limit in dollars or tokens; exit 1

Each carries a fault, a status, a message of one line, and a hint with a fix.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hipwright.records import Fault, Stage, Status, Verdict


class HipwrightError(Exception):
    """Base of all deliberate errors. `evidence` holds plain JSON types."""

    fault: ClassVar[Fault] = "service"
    status: Status = "unscorable"
    stage: Stage = "verify"
    exit_code: ClassVar[int] = 3

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        status: Status | None = None,
        stage: Stage | None = None,
        evidence: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.evidence = evidence or {}
        if status is not None:
            self.status = status
        if stage is not None:
            self.stage = stage

    def verdict(self) -> Verdict:
        """The verdict of this error."""
        return Verdict(
            status=self.status, fault=self.fault, stage=self.stage, message=self.message, evidence=self.evidence
        )


class BadInput(HipwrightError):
    """A missing file, a wrong option, an unreadable argument."""

    fault = "task"
    stage: Stage = "load"
    exit_code = 2


class TaskError(HipwrightError):
    """The task's own code raises, lacks `Model`, or returns nothing that can be compared."""

    fault = "task"
    stage: Stage = "load"
    exit_code = 2


class CandidateError(HipwrightError):
    """The candidate is at fault."""

    fault = "candidate"
    status: Status = "launch_error"
    exit_code = 1


class ProgramError(CandidateError):
    """The program does not parse or check. `line` counts from 1 in the program's own text."""

    status: Status = "parse_error"
    stage: Stage = "parse"

    def __init__(self, message: str, line: int = 0, **kwargs: Any) -> None:
        super().__init__(f"line {line}: {message}" if line else message, **kwargs)
        self.line = line
        self.evidence.setdefault("line", line)


class GuardFailed(ProgramError):
    """A shape guard of the plan (`assert`) is false: the program does not support this workload."""

    stage: Stage = "launch"


class CompileError(CandidateError):
    """The HIP source does not compile for a target."""

    status: Status = "compile_error"
    stage: Stage = "build"


class InfrastructureError(HipwrightError):
    """Not the candidate's fault; it says nothing about the candidate."""


class ToolchainError(InfrastructureError):
    """A compiler is missing or broken."""

    fault = "toolchain"
    stage: Stage = "build"


class SandboxMissing(InfrastructureError):
    """Hostile code cannot be contained on this machine."""


class DeviceError(InfrastructureError):
    """A device failed or disappeared."""

    fault = "device"


class FleetAway(InfrastructureError):
    """The fleet stays away: nothing was judged, and the command ends."""


class WorkerError(InfrastructureError):
    """A worker process of hipwright died or broke its protocol."""


class ProviderError(InfrastructureError):
    """A model's provider failed. retryable: it may answer later, so the run can be resumed unchanged."""

    fault = "provider"

    def __init__(self, message: str, *, retryable: bool = False, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.retryable = retryable


class OutOfBudget(HipwrightError):
    """A call would exceed a limit in dollars or tokens; raised before anything is sent."""

    exit_code = 1
