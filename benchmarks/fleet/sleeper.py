"""A device that sleeps: what the seats of the fleet's tests and benchmark run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from hipwright.device.fingerprint import NodeFingerprint
from hipwright.errors import CandidateError, DeviceError
from hipwright.fleet.records import Order


class Sleeper:
    """Sleeps as long as an order says, and answers with its number squared.

    An order's payload: "number", "seconds", "raise": "candidate" or "device" for an error of that kind. setup: "doubt":
    a folder in which a file named like the seat's process, or "all", makes its timings doubtful; "gate": a file for
    which every evaluation waits.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        self._doubts, self._gate = setup.get("doubt", ""), setup.get("gate", "")
        self._open: str | None = None
        self.opened = 0

    def fingerprint(self, host: str, neighbours: int) -> NodeFingerprint:
        """A fake device's."""
        return NodeFingerprint(host=host, architecture="fake", device="sleeper", neighbours=neighbours)

    def build(self, order: Order) -> Any:
        """Nothing."""

    def prepare(self, order: Order) -> None:
        """Counts how often a group was opened."""
        if self._open != order.group:
            self._open = order.group
            self.opened += 1

    def evaluate(self, order: Order, built: Any) -> Any:
        """The number squared, after a sleep."""
        time.sleep(float(order.payload.get("seconds", 0)))
        while self._gate and not Path(self._gate).exists():
            time.sleep(0.02)
        kind = order.payload.get("raise")
        if kind:
            raise (CandidateError if kind == "candidate" else DeviceError)(f"planted: {kind}")
        return {"square": order.payload["number"] ** 2, "opened": self.opened, "pid": os.getpid()}

    def doubt(self, value: Any) -> str:
        """What the file in the folder of doubts says."""
        for name in (str(os.getpid()), "all") if self._doubts else ():
            path = Path(self._doubts) / name
            if path.exists():
                return path.read_text()
        return ""

    def close(self) -> None:
        """Nothing is open."""
