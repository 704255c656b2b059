"""Static-shape variants: beside each kernel that counts in run-time sizes, one with the captured sizes as constants.

The compiler then drops tails and bounds that the sizes never meet and divides by multiplication. `forward` launches the
variant where the sizes are the captured ones, and the general kernel elsewhere: shape specialisation with a fallback,
as torch.compile's static shapes, in one program. A program that would exceed `MOST_TEXT` with them has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from hipwright.engine.emit.function import StaticShapeVariant
from hipwright.engine.emit.tree import words
from hipwright.engine.partition.state import Lowered
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.templates.base import EmittedKernel

ENOUGH_ELEMENTS = 1 << 16
"""Elements of all the values of a graph from which on a second build pays; smaller work is a launch and no more."""

MOST_TEXT = 300_000
"""Characters of a program with variants: each is an entry to build and a launch in the plan."""


class StaticShapes:
    """The static-shape variants of one program."""

    def __init__(self, lowered: Lowered, names: KernelNames) -> None:
        self._names = names
        self._symbols = {s.name: s.hint for s in lowered.graph.symbols}
        self._hints, self._derived = lowered.context.hints, lowered.context.reader.derived
        self._constants: set[str] = set()  # sizes that some variant has as constants

    def add(self, kernel: EmittedKernel, buffers: Collection[str]) -> tuple[str, list[bool]] | None:
        """Give a kernel a variant: (its name, for each argument whether it stays one); None where no size is known, the
        entry point is device code, or the kernel is `single`. buffers: the arguments that are tensors.
        """
        values = [None if a in buffers else self._hints.get(a) for a in kernel.arguments]
        if kernel.function is None or kernel.single or all(value is None for value in values):
            return None
        name = self._names.static_variant(kernel.name)
        kernel.function.variant = StaticShapeVariant(name, values, kernel.static_bounds)
        self._constants |= {a for a, value in zip(kernel.arguments, values, strict=True) if value is not None}
        return name, [value is None for value in values]

    def conditions(self) -> list[str]:
        """What holds where the sizes are those that the variants have as constants."""
        names = set(self._constants)
        for name in self._constants & self._derived.keys():
            names |= words(self._derived[name])
        return [f"{name} == {hint}" for name, hint in self._symbols.items() if name in names]


def dropped(plan: str, captured: str) -> str:
    """The plan without its launches of variants. captured: the name of the condition."""
    branches = re.compile(rf"^( *)if {captured}:\n.*\n *else:\n *(.*)$", re.MULTILINE)
    return re.sub(rf"^ *{captured} = .*\n", "", branches.sub(r"\1\2", plan), flags=re.MULTILINE)


def launches(kernel: EmittedKernel, arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The geometry and the arguments of every launch of a kernel, as the plan writes them."""
    block = f"{kernel.block}, {kernel.lds}" if kernel.lds else kernel.block
    first = (f"[{kernel.grid}, {block}]", list(arguments))
    if not kernel.combining_grid:
        return [first]
    return [first, (f"[{kernel.combining_grid}, {block}]", [*arguments[:-1], "1"])]


def launch(captured: str, variant: str, general: str) -> Sequence[str]:
    """The lines that launch a variant where the condition `captured` holds, and else the general kernel."""
    return [f"if {captured}:", f"    {variant}", "else:", f"    {general}"]
