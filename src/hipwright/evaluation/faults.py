"""Consequences of a failure's fault: only the candidate's own counts against it, and the machine's are retried."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from hipwright.errors import DeviceError, HipwrightError, InfrastructureError, ToolchainError, WorkerError
from hipwright.records import Evaluation

MACHINE_FAULTS = ("toolchain", "device", "provider", "service")
"""Faults that say nothing about the candidate and may not occur again."""
_ERRORS: dict[str, type[InfrastructureError]] = {"toolchain": ToolchainError, "device": DeviceError}


def failed_by_machine(evaluation: Evaluation) -> bool:
    """Whether the machine, not the candidate or its task, ended the evaluation."""
    return evaluation.fault in MACHINE_FAULTS


def as_error(evaluation: Evaluation) -> InfrastructureError:
    """A fault of the machine as an error, for schedules that retry what raises."""
    kind = _ERRORS.get(evaluation.fault or "", WorkerError)
    return kind(evaluation.message or f"{evaluation.fault} at fault", status=evaluation.status)


def failed(task: str, program: str, error: Exception) -> Evaluation:
    """The evaluation of a program whose evaluation raised. task, program: their keys.

    Any other error than a HipwrightError is a defect of hipwright and a fault of the service: it must not count against
    the program.
    """
    if isinstance(error, HipwrightError):
        return Evaluation(task=task, program=program, status=error.status, fault=error.fault, message=error.message)
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"
    return Evaluation(task=task, program=program, status="unscorable", fault="service", message=message)


def retried(attempt: Callable[[], Evaluation], attempts: int, before_retry: Callable[[], bool]) -> Evaluation:
    """The evaluation of the first attempt without a fault of the machine, else of the last attempt.

    before_retry: called before every further attempt; False stops.
    """
    evaluation = attempt()
    for _ in range(attempts - 1):
        if not failed_by_machine(evaluation) or not before_retry():
            break
        evaluation = attempt()
    return evaluation
