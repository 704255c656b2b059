"""The record of a step, and what becomes of its errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from hipwright.errors import HipwrightError
from hipwright.events import Listener
from hipwright.records import Record

SKIP_HINT = "mend the step that it needs, then run `hipwright contact` again"


class Step(Record, frozen=True, kw_only=True):
    """One step. facts: figures by name; message, hint: why it failed or was skipped, what to do; output: its log."""

    name: str
    title: str
    status: Literal["ok", "failed", "skipped"]
    seconds: float = 0.0
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    message: str = ""
    hint: str = ""
    output: str = ""


class ContactReport(Record, frozen=True, kw_only=True):
    """All steps. gpu: the device's name; simulated: whether it is software; rows: of the benchmark of the last step."""

    version: str
    started: str
    gpu: str
    architecture: str
    simulated: bool
    steps: tuple[Step, ...] = ()
    rows: tuple[dict[str, Any], ...] = ()
    archive: str = ""
    page: str = ""

    @property
    def ok(self) -> bool:
        """Whether every step was run and did what it must."""
        return all(step.status == "ok" for step in self.steps)


class StepFailed(HipwrightError):
    """A step that failed, with what it printed. fault: that of its cause."""

    def __init__(self, message: str, *, hint: str = "", output: str = "", facts: dict[str, Any] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.output, self.facts = output, facts or {}


class Steps:
    """Runs steps one after another; a failing one is kept, and the others go on."""

    def __init__(self, listener: Listener) -> None:
        self.done: list[Step] = []
        self._listener = listener

    def run(self, name: str, title: str, work: Callable[[], dict[str, Any]], *, needs: tuple[str, ...] = ()) -> Step:
        """work(): the facts, and under "output" its log. needs: steps without which it is skipped."""
        self._listener("stage", {"text": title})
        missing = [other.name for other in self.done if other.name in needs and other.status != "ok"]
        step = self._skipped(name, title, missing[0]) if missing else self._ran(name, title, work)
        self.done.append(step)
        if step.status != "ok":
            self._listener("note", {"text": f"{step.status}: {title}: {step.message}"})
        return step

    def _ran(self, name: str, title: str, work: Callable[[], dict[str, Any]]) -> Step:
        started = time.monotonic()
        try:
            facts = work()
        except HipwrightError as error:
            spent = round(time.monotonic() - started, 3)
            output, facts = getattr(error, "output", ""), getattr(error, "facts", {})
            why = {"message": error.message, "hint": error.hint or "send the archive: this is a finding"}
            return Step(name=name, title=title, status="failed", seconds=spent, output=output, facts=facts, **why)
        output = str(facts.pop("output", ""))
        spent = round(time.monotonic() - started, 3)
        return Step(name=name, title=title, status="ok", seconds=spent, facts=facts, output=output)

    def _skipped(self, name: str, title: str, needed: str) -> Step:
        return Step(name=name, title=title, status="skipped", message=f"the step {needed} failed", hint=SKIP_HINT)
