"""Which names of a plan may stand for the same memory: views, and results of library calls that may be views."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.plan.in_place import OWN_MEMORY


class MemoryNames:
    """Gives each name of a plan one name for all that may share its memory."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The name that stands for the memory of a tensor."""
        while name in self._parents:
            name = self._parents[name]
        return name

    def same(self, one: str, other: str) -> None:
        """Note that two tensors may share memory."""
        first, second = self.of(one), self.of(other)
        if first != second:
            self._parents[first] = second

    def made_by(self, operator: str, results: Sequence[str], given: Sequence[str]) -> None:
        """Note the results of a library call: they may be views of its arguments, unless the operator makes memory."""
        for name in [] if operator in OWN_MEMORY else [*results, *given]:
            self.same(results[0], name)
