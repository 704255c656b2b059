"""What an evolving audit found: programs by kind and check, survivors, refused honest variants."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hipwright.evaluation.figures import wilson
from hipwright.records import content_key

Fate = Literal["refused", "survived", "equivalent", "unclear", "stillborn", "void"]
"""refused: no credit. survived: wrong, and passed. equivalent, unclear: passed, and not shown to be wrong.
stillborn: no program. void: no verdict, by a fault of the machine.
"""


@dataclass(frozen=True)
class EvolvedProgram:
    """A program with a fault and its fate. check: what refused it; why: the verdict's message, or why it is wrong."""

    task: Path
    parent: str
    kind: str
    how: str
    line: int
    after: str
    text: str
    fate: Fate
    check: str
    why: str
    seconds: float
    nearness: float = 0.0

    @property
    def key(self) -> str:
        """A short name of its text."""
        return content_key("evolved", self.text)[:10]

    @property
    def name(self) -> str:
        """A file's stem."""
        words = "_".join(self.kind.lower().split())
        return f"{words}_{self.task.stem}_{self.key}"

    def summary(self) -> dict[str, Any]:
        """Plain JSON types, without the text."""
        return {
            "name": self.name,
            "task": str(self.task),
            "parent": self.parent,
            "kind": self.kind,
            "how": self.how,
            "line": self.line,
            "after": self.after[:200],
            "fate": self.fate,
            "why": self.why[:300],
        }


@dataclass(frozen=True)
class HonestVariant:
    """A program that must pass. why: "" for a pass, else the verdict."""

    task: Path
    parent: str
    kind: str
    text: str
    why: str = ""
    void: bool = False


@dataclass
class EvolutionReport:
    """Everything that an evolving audit judged."""

    seed: int
    programs: list[EvolvedProgram] = field(default_factory=list)
    honest: list[HonestVariant] = field(default_factory=list)
    tasks: set[Path] = field(default_factory=set)
    unusable: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def counts(self) -> Counter[Fate]:
        """The number of programs by fate."""
        return Counter(one.fate for one in self.programs)

    @property
    def wrong(self) -> int:
        """Wrong programs that have a verdict."""
        return self.counts["refused"] + self.counts["survived"]

    @property
    def refused_share(self) -> float:
        """The share of the wrong programs that were refused."""
        return self.counts["refused"] / self.wrong if self.wrong else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the refused share."""
        return wilson(self.counts["refused"], self.wrong)

    def survivors(self) -> list[EvolvedProgram]:
        """Wrong programs that passed."""
        return [one for one in self.programs if one.fate == "survived"]

    def refused_honest(self) -> list[HonestVariant]:
        """Honest variants that did not pass."""
        return [one for one in self.honest if one.why and not one.void]

    @property
    def failed(self) -> bool:
        """Whether a wrong program passed or an honest one did not."""
        return bool(self.survivors() or self.refused_honest())

    def matrix(self) -> list[KindRow]:
        """The detection matrix: a row for each kind of fault."""
        rows: dict[str, KindRow] = {}
        for one in self.programs:
            rows.setdefault(one.kind, KindRow(one.kind)).add(one)
        return [rows[kind] for kind in sorted(rows)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "tasks": sorted(map(str, self.tasks)),
            "unusable": self.unusable,
            "wrong": self.wrong,
            "counts": dict(self.counts),
            "refused_share": round(self.refused_share, 5),
            "interval": list(self.interval),
            "kinds": [row.to_dict() for row in self.matrix()],
            "survivors": [one.summary() for one in self.survivors()],
            "unclear": [one.summary() for one in self.programs if one.fate == "unclear"],
            "honest": {
                "judged": sum(not one.void for one in self.honest),
                "refused": [
                    {"task": str(one.task), "parent": one.parent, "kind": one.kind, "why": one.why}
                    for one in self.refused_honest()
                ],
            },
        }


@dataclass
class KindRow:
    """A row of the detection matrix. checks: the number of wrong programs that each check refused."""

    kind: str
    refused: int = 0
    survived: int = 0
    others: Counter[Fate] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def add(self, one: EvolvedProgram) -> None:
        """Counts a program."""
        if one.fate == "refused":
            self.refused += 1
            self.checks[one.check] += 1
        elif one.fate == "survived":
            self.survived += 1
        else:
            self.others[one.fate] += 1

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share that is refused."""
        return wilson(self.refused, self.refused + self.survived)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "kind": self.kind,
            "refused": self.refused,
            "survived": self.survived,
            "interval": list(self.interval),
            "checks": dict(self.checks),
            "not counted": dict(self.others),
        }
