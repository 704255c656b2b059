"""Collects the statements of a converted plan, for `cpp_host` and `forward_plan`."""

from __future__ import annotations

import re


class PlanLines:
    """The lines of a plan, and the names used in it."""

    def __init__(self, used: set[str]) -> None:
        self.lines: list[str] = []
        self.used = used
        self.indent = "    "

    def line(self, text: str) -> None:
        """Appends one statement."""
        self.lines.append(self.indent + text)

    def fresh(self, name: str) -> str:
        """Reserves an unused name like `name`."""
        base = re.sub(r"\W", "_", name).lower().strip("_") or "v"
        found, number = base, 1
        while found in self.used:
            number += 1
            found = f"{base}_{number}"
        self.used.add(found)
        return found
