"""What a program does at given input shapes: which guard refuses them, and how each comparison of sizes comes out."""

from __future__ import annotations

from dataclasses import dataclass, field

from hipwright.verify.admitted.reach import Compared


@dataclass(frozen=True, slots=True)
class SizeCondition:
    """A comparison of sizes in a plan, or in a kernel (where: its name). line: of the program."""

    where: str
    line: int
    text: str


Side = tuple[SizeCondition, bool]
"""A comparison and one of its outcomes."""


@dataclass
class ShapeTrace:
    """refused: the guard that declines the shapes, or ""; compared: every comparison that was reached."""

    refused: str = ""
    compared: dict[SizeCondition, Compared] = field(default_factory=dict)

    def note(self, condition: SizeCondition, found: Compared) -> None:
        """Adds the outcome of a comparison; one that is reached twice has the outcomes of both."""
        before = self.compared.get(condition)
        if before is not None:
            near = min(before.gap, found.gap, key=abs)
            sized = before.sized or found.sized
            found = Compared(before.true or found.true, before.false or found.false, sized, near)
        self.compared[condition] = found

    @property
    def sides(self) -> set[Side]:
        """The outcomes that occur at these shapes; none where they are refused."""
        if self.refused:
            return set()
        found = {(one, True) for one, seen in self.compared.items() if seen.true and seen.sized}
        return found | {(one, False) for one, seen in self.compared.items() if seen.false and seen.sized}
