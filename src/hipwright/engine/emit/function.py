"""An entry kernel as a node: parameters, launch bounds, body, and the variants in which it is printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from hipwright.engine.emit.tree import Node, drop_unused, printed

_ENTRY = 'extern "C" __global__ void '
_DEVICE = "static __device__ __forceinline__ void "
PART_BLOCK = "part_block"
"""The parameter of a joined part that stands for `blockIdx.x`: the number of the block among those of the part."""
_CALLED = re.compile(r"\b\w+(?=\()")
_BLOCK_INDEX = re.compile(r"\bblockIdx\.x\b")


@dataclass(frozen=True)
class KernelParameter:
    """A parameter: its type with qualifiers, and its name."""

    type: str
    name: str

    @property
    def read_only(self) -> bool:
        """Whether it points to memory that the kernel only reads."""
        return self.type.startswith("const ") and self.type.endswith("* __restrict__")

    @property
    def text(self) -> str:
        """The declaration."""
        return f"{self.type} {self.name}"


@dataclass(frozen=True)
class StaticShapeVariant:
    """A second entry point with the captured sizes as constants.

    constants: one value a parameter, None for what stays a parameter. bounds: its launch bounds, "" for the kernel's.
    """

    name: str
    constants: Sequence[int | None]
    bounds: str = ""


@dataclass(eq=False)
class KernelFunction:
    """A kernel's text as a tree. keep_reads: what it reads stays in the last-level cache (plan/streaming.py). parts:
    kernels that are joined in this one (plan/joining.py), whose body calls `part_name` of each.
    """

    name: str
    comment: str
    bounds: str
    parameters: list[KernelParameter]
    body: list[Node]
    variant: StaticShapeVariant | None = None
    keep_reads: bool = False
    parts: Sequence[KernelFunction] = ()
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Drops declarations that nothing uses; `names` are those that the body uses."""
        self.names = drop_unused(self.body, frozenset())

    def part_name(self, number: int) -> str:
        """The name of the device function that a joined part is printed as."""
        return f"{self.name}_part{number + 1}"

    def text(self, elsewhere: Mapping[str, str] = MappingProxyType({})) -> str:
        """The printed kernel: one entry, or a body that the general entry and the static-shape variant share.

        elsewhere: the device functions of other kernels that stand for some of its parts', by the names of its own.
        """
        parts = [(self.part_name(number), part) for number, part in enumerate(self.parts)]
        title = f"// {self.comment}\n" + "".join(part.as_part(name) for name, part in parts if name not in elsewhere)
        start = f"{_ENTRY}__launch_bounds__({self.bounds}) {self.name}"
        lines = [_called_by(line, elsewhere) for line in self.lines()] if parts else self.lines()
        if self.variant is None:
            return title + _function(start, self.parameters, lines)
        body = f"{self.name}_body"
        chosen = list(zip(self.parameters, self.variant.constants, strict=True))
        left = [p for p, value in chosen if value is None]
        given = [p.name if value is None else _literal(value) for p, value in chosen]
        other = f"{_ENTRY}__launch_bounds__({self.variant.bounds or self.bounds}) {self.variant.name}"
        return (
            title
            + _function(f"{_DEVICE}{body}", self.parameters, lines)
            + "\n"
            + _function(start, self.parameters, [_call(body, [p.name for p in self.parameters])])
            + "\n// the sizes of the task as constants\n"
            + _function(other, left, [_call(body, given)])
        )

    def as_part(self, name: str) -> str:
        """The kernel as a device function for a joined one: PART_BLOCK, then its parameters."""
        lines = [_BLOCK_INDEX.sub(PART_BLOCK, line) for line in self.lines()]
        return (
            _function(f"{_DEVICE}{name}", [KernelParameter("const unsigned", PART_BLOCK), *self.parameters], lines)
            + "\n"
        )

    def lines(self) -> list[str]:
        """The body's lines, printed."""
        kept = [p.name for p in self.parameters if self.keep_reads and p.read_only]
        return [*(f"    {name} = retain_in_cache({name});" for name in kept), *printed(self.body, 1)]


def _called_by(line: str, names: Mapping[str, str]) -> str:
    return _CALLED.sub(lambda found: names.get(found[0], found[0]), line)


def _function(start: str, parameters: Sequence[KernelParameter], lines: Sequence[str]) -> str:
    declared = wrapped(", ".join(p.text for p in parameters))
    return f"{start}(\n    {declared}) {{\n" + "\n".join(lines) + "\n}\n"


def _call(name: str, arguments: Sequence[str]) -> str:
    return f"    {name}({', '.join(arguments)});"


def _literal(value: int) -> str:
    return f"{value}L" if abs(value) >= 1 << 31 else str(value)


def wrapped(text: str, width: int = 112) -> str:
    """A parameter list over several lines."""
    lines = [""]
    for part in text.split(", "):
        if lines[-1] and len(lines[-1]) + len(part) + 2 > width:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + part
    return ",\n    ".join(lines)
