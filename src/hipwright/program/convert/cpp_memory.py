"""Converts calls of the runtime's memory functions in host code: allocations become tensors of the plan.

An allocation is a tensor of its own; a copy of a whole buffer gives it the name of the other, since a plan's values are
never written by the host. What would write into an input, or into a buffer that a kernel has written, is refused.
"""

from __future__ import annotations

import re

from hipwright.program.convert.cpp_expression_parser import Node
from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.cpp_values import HostExpressionConverter
from hipwright.program.convert.host_value import CTYPES, OK, HostValue
from hipwright.program.convert.plan_writer import PlanLines
from hipwright.program.kernel_types import SCALARS, SIZES

_CALL = re.compile(r"(?:cuda|hip)(?P<what>Malloc|Free|Memset|Memcpy)(?:Async)?")
_ARGUMENTS = {"Malloc": 2, "Free": 1, "Memset": 3, "Memcpy": 4}
_DTYPES = {SCALARS[ctype]: dtype for dtype, ctype in CTYPES.items() if ctype in SCALARS}


class HostMemoryConverter(HostExpressionConverter):
    """Converts the memory calls of one function."""

    writer: PlanLines

    def memory_call(self, name: str, args: list[Node]) -> HostValue | None:
        """Writes an allocation, a fill with zeros or a copy; None for another function."""
        found = _CALL.fullmatch(name)
        if found is None:
            return None
        what = found["what"]
        if len(args) < _ARGUMENTS[what]:
            raise Inconvertible(f"{name}() takes {_ARGUMENTS[what]} arguments")
        if what == "Malloc":
            self.allocate(name, args)
        elif what == "Memset":
            self.fill(name, args)
        elif what == "Memcpy":
            self.copy(name, args)
        return OK

    def allocate(self, name: str, args: list[Node]) -> None:
        """Writes p = torch.empty(...) for Malloc(&p, bytes)."""
        target = _uncast(args[0])
        pointer = _uncast(target[2]) if target[:2] == ("unary", "&") else ("", "")
        variable = pointer[1] if pointer[0] == "name" else ""
        known = self.env.get(variable)
        dtype = _DTYPES.get(SCALARS.get(known.ctype, "")) if known is not None else None
        size = self.value(args[1])
        if known is None or not known.kind.endswith("pointer") or dtype is None or size.kind != "int":
            raise Inconvertible(f"{name}() of something other than a pointer to numbers and a count of bytes")
        local = self.writer.fresh(variable)
        self.writer.line(f"{local} = torch.empty(({size.text}) // {SIZES[SCALARS[known.ctype]]}, dtype=torch.{dtype})")
        self.env[variable] = HostValue("pointer", local, ctype=known.ctype)

    def fill(self, name: str, args: list[Node]) -> None:
        """Writes p = torch.zeros_like(p) for Memset(p, 0, bytes) of memory that nothing has written."""
        target, value = self.value(args[0]), self.value(args[1])
        if target.kind != "pointer" or value.text != "0" or not self.unwritten(target.text):
            raise Inconvertible(f"{name}() of something other than fresh memory with zeros")
        self.whole(target, args[2])
        self.writer.line(f"{target.text} = torch.zeros_like({target.text})")

    def copy(self, name: str, args: list[Node]) -> None:
        """Gives the destination of a copy the source's value: a buffer of this function, or a fresh output."""
        target, source = self.value(args[0]), self.value(args[1])
        if target.kind != "pointer" or source.kind != "pointer":
            raise Inconvertible(f"{name}() of something other than two pointers")
        if not self.unwritten(target.text):
            raise Inconvertible(f"{name}() into memory that is no fresh output, and no allocation of the function")
        self.whole(target, args[2])
        self.writer.line(f"{target.text} = {source.text}.reshape({target.text}.shape)")

    def whole(self, target: HostValue, size: Node) -> None:
        """Writes a guard that a count of bytes is the whole of a buffer, as parts have no counterpart in a plan."""
        count = self.value(size).text
        held = f"{target.text}.numel() * {target.text}.element_size()"
        self.writer.line(f"assert {count} == {held}, 'a part of a buffer is copied or filled'")

    def unwritten(self, text: str) -> bool:
        """Whether a local of the plan is memory that was allocated, and that no launch was given since."""
        start = rf"\s*{re.escape(text)} = "
        made = [at for at, line in enumerate(self.writer.lines) if re.match(start, line)]
        if not text.isidentifier() or not made or "torch.empty" not in self.writer.lines[made[-1]]:
            return False
        launches = (line for line in self.writer.lines[made[-1] :] if re.match(r"\s*\w+\[", line))
        return not any(re.search(rf"\b{re.escape(text)}\b", line) for line in launches)


def _uncast(node: Node) -> Node:
    """A node without the casts around it."""
    while node[0] == "cast":
        node = node[2]
    return node
