"""The names of a program's kernels: those of their operators, unlike any name that the plan or C uses."""

from __future__ import annotations

import re

from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.device_code import reserved
from hipwright.engine.fuse.groups import Group
from hipwright.engine.partition.state import Lowered
from hipwright.engine.templates.base import fused

_IDENTIFIERS = {"signal", "index", "kernel", "main", "select", "remove", "write", "read", "open", "close", "pipe"}


class KernelNames:
    """Gives each kernel of one program its name."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._locals: dict[tuple[int, ...], set[str]] = {}

    def kernel(self, lowered: Lowered, group: Group) -> str:
        """A free name made of the first three operators that a kernel fuses."""
        parts: list[str] = []
        for label in fused(group).split(", "):
            bare = re.sub(r"(_default|_\d+)+$", "", label)
            bare = re.sub(r"[^A-Za-z0-9_]", "_", bare).strip("_")
            if bare and bare not in parts:
                parts.append(bare)
        name = "_".join(parts[:3]) or "kernel"
        name = name[:60]
        if name in reserved() or name[0].isdigit() or name in _IDENTIFIERS or name in self._of_plan(lowered):
            name = f"{name}_kernel"
        return self.free(name)

    def _of_plan(self, lowered: Lowered) -> set[str]:
        """The names that the plan gives to tensors."""
        key = id(lowered), len(lowered.tensors), len(lowered.metas), len(lowered.items)
        if key not in self._locals:
            self._locals[key] = _locals(lowered)
        return self._locals[key]

    def free(self, base: str) -> str:
        """The name, numbered where it is taken."""
        name, count = base, 1
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def static_variant(self, name: str) -> str:
        """A free name for a kernel's static-shape variant."""
        return self.free(f"{name}_exact")


def _locals(lowered: Lowered) -> set[str]:
    """The names that the plan gives to tensors."""
    names = [*lowered.tensors, *lowered.metas, *(i.name for i in lowered.items), *lowered.graph.parameters]
    names += [n.name for n in lowered.graph.nodes] + [s.name for s in lowered.graph.symbols]
    return {cname(n) for n in names} | {re.sub(r"_\d+$", "", cname(n)) for n in names}
