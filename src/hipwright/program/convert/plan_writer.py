"""Where the statements of a converted plan are written, by `cpp_host` and `program.convert.forward_plan` alike."""

from __future__ import annotations

import re


class PlanLines:
    """Lines of a plan, and names that are not yet used in it."""

    def __init__(self, used: set[str]) -> None:
        self.lines: list[str] = []
        self.used = used
        self.indent = "    "

    def line(self, text: str) -> None:
        """One statement."""
        self.lines.append(self.indent + text)

    def fresh(self, name: str) -> str:
        """A name like `name` that is free."""
        base = re.sub(r"\W", "_", name).lower().strip("_") or "v"
        found, number = base, 1
        while found in self.used:
            number += 1
            found = f"{base}_{number}"
        self.used.add(found)
        return found
