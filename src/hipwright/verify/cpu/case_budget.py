"""How many cases one verification on the cpu target has beside those that always run, by what a case costs here.

A case costs the program's kernels on this processor, and the runs of the reference that make its expectation. Both are
predicted from counts, so that a busy machine leaves nothing out. What always runs:

| what | what nothing else would find |
|---|---|
| `LEAST_FAMILIES` on the main workload | unaligned and strided access; signs; all magnitudes; named values |
| checked calls, launch orders, poisons, calls in a row | races, leftovers of earlier calls, results that are kept |
| the family `scales` at the first unseen shape | code that is written for the main workload's sizes |
| shapes of secret sizes that the guards admit | code that is written for all shapes of the plan |
| the first family at the task's own shapes, and one adversarial one | code that the given sizes alone reach |

Shapes for sides of comparisons need no minimum: what is not judged is left to a guard (docs/verification.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hipwright.verify.oracle import LAST_FAMILIES

LEAST_FAMILIES = LAST_FAMILIES
BUDGET_SECONDS = 40.0
"""Processor seconds of the cases beside those that always run."""
PARAMETER_BYTE_SECONDS = 1.5e-8
"""Of an expectation, for each byte of parameters: the reference runs some seven times, on values that are widened and
nudged before."""
OPERATION_SECONDS = 4e-10
"""Of an expectation, for each operation of a product or convolution in one forward."""


def expectation_seconds(parameter_bytes: int, operations: float) -> float:
    """Processor seconds of one case's expectation."""
    return parameter_bytes * PARAMETER_BYTE_SECONDS + operations * OPERATION_SECONDS


@dataclass
class CaseBudget:
    """What is left for further cases of one verification. left_out: the names of those that it does not allow, with
    what each would cost.
    """

    seconds: float = field(default_factory=lambda: BUDGET_SECONDS)
    spent: float = 0.0
    left_out: dict[str, float] = field(default_factory=dict)
    _allowed: set[str] = field(default_factory=set)

    def allows(self, name: str, cost: float) -> bool:
        """Whether what has this name may run; the answer stays."""
        if name not in self._allowed and name not in self.left_out:
            if self.spent + cost <= self.seconds:
                self._allowed.add(name)
                self.spent += cost
            else:
                self.left_out[name] = cost
        return name in self._allowed

    def why(self, name: str) -> str:
        """The reason for what was left out."""
        told = f"about {self.left_out[name]:.1f} s of the cpu target's processor"
        return f"a case takes {told}, and the {self.seconds:g} s for cases beside the least are spent"

    def to_dict(self) -> dict[str, float | int]:
        """What a verdict says of it; {} where nothing was left out."""
        if not self.left_out:
            return {}
        dearest = max(self.left_out.values())
        return {"budget_s": self.seconds, "case_s": round(dearest, 2), "left_out": len(self.left_out)}
