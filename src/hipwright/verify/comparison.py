"""The result of a comparison of outputs with their expectation."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from hipwright.records import Status


@dataclass(frozen=True)
class OutputComparison:
    """The comparison of the worst leaf.

    worst_error: error / budget, at most 1 where it passes; inf for a wrong structure, mask or index. where: the index
    of the element; wrong, total: elements.
    """

    status: Status = "pass"
    worst_error: float = 0.0
    path: str = ""
    where: tuple[int, ...] = ()
    expected: Any = None
    got: Any = None
    budget: float | None = None
    wrong: int = 0
    total: int = 0
    message: str = ""

    @property
    def ok(self) -> bool:
        """True when everything is within budget."""
        return self.status == "pass"

    def evidence(self) -> dict[str, Any]:
        """The evidence for a Verdict, as plain JSON types."""
        return {
            "output": self.path,
            "index": list(self.where),
            "expected": _plain(self.expected),
            "got": _plain(self.got),
            "tolerance": _plain(self.budget),
            "wrong_elements": self.wrong,
            "elements": self.total,
        }


def _plain(value: Any) -> Any:
    """A value in JSON: NaN and Inf become strings."""
    if isinstance(value, float) and (value != value or value in (inf, -inf)):
        return str(value)
    return value
