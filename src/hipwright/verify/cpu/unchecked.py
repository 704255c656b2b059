"""What ran in the build without checks alone: kernels, and shapes that take sides of their own.

A program may have a race or a misaligned access only in a kernel, or on a side of a comparison of sizes, that the
smallest workload does not reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hipwright.verify.candidate import CallReply
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.verification import elements


@dataclass
class UncheckedKernels:
    """The cases of one program that should run in its checked build too."""

    checked_cases: list[VerificationCase] = field(default_factory=list)
    _checking: bool = False
    _checked: set[str] = field(default_factory=set)
    _least: dict[str, VerificationCase] = field(default_factory=dict)  # of each kernel that ran
    _first: dict[str, VerificationCase] = field(default_factory=dict)  # of each workload
    _sides: list[VerificationCase] = field(default_factory=list)

    def ran_checked(self, answer: CallReply) -> None:
        """Records a call in the checked build."""
        self._checked |= {entry["kernel"] for entry in answer.stats}

    @contextmanager
    def checking(self) -> Iterator[None]:
        """While `ran` tells of calls in the checked build."""
        self._checking = True
        try:
            yield
        finally:
            self._checking = False

    def ran(self, case: VerificationCase, answer: CallReply) -> None:
        """Records a call, in the build without checks but for `checking`."""
        if self._checking:
            self.checked_cases.append(case)
            self.ran_checked(answer)
            return
        self._first.setdefault(case.workload, case)
        for kernel in {entry["kernel"] for entry in answer.stats}:
            known = self._least.get(kernel)
            if known is None or elements(case) < elements(known):
                self._least[kernel] = case

    def add_sides(self, workloads: list[str]) -> None:
        """Adds the first case of each of these workloads, which take sides that no other takes."""
        self._sides = [self._first[name] for name in workloads if name in self._first]

    def cases(self) -> list[VerificationCase]:
        """Cases that reach what ran without checks alone."""
        return list(dict.fromkeys([*self._sides, *(self._least[kernel] for kernel in self.left())]))

    def wants(self, case: VerificationCase) -> bool:
        """Whether a case still reaches something unchecked."""
        return case in self._sides or any(self._least[kernel] == case for kernel in self.left())

    def left(self) -> list[str]:
        """Kernels that ran in no checked build."""
        return sorted(set(self._least) - self._checked)
