"""`def prepare` of a program: the launches of kernels that pack parameters, and nothing else (docs/program.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hipwright.capture.graph import Input
from hipwright.engine.emit.tree import Statement, printed
from hipwright.engine.ir.index import Ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import row_major
from hipwright.engine.templates.base import EmittedKernel

Allocated = Mapping[str, tuple[list[Ix], str]]


class Preparation:
    """Writes `prepare`. names: the plan's names of tensors, which change for what `prepare` makes."""

    def __init__(
        self, tensors: Mapping[str, Input], names: dict[str, str], name: Callable[[str], str], *, wanted: bool
    ) -> None:
        self._tensors, self._names, self._name, self._wanted = tensors, names, name, wanted
        self._statements: list[Statement] = []
        self._made: list[str] = []

    def takes(self, kernel: EmittedKernel, allocate: Allocated) -> bool:
        """Whether a kernel packs parameters alone, as they lie in memory, into memory of one size for all calls."""
        sources = [self._tensors.get(buffer) for buffer in kernel.reads]
        return (
            self._wanted
            and kernel.packs
            and {*kernel.arguments} == {*kernel.reads, *kernel.writes}
            and all(size.value is not None for buffer in kernel.writes for size in allocate.get(buffer, ([], ""))[0])
            and all(t and t.kind == "param" and row_major(t.meta.shape, t.meta.stride) for t in sources)
        )

    def add(self, kernel: EmittedKernel, allocate: Allocated) -> None:
        """The launch of such a kernel; from here on what it writes has the name `self.prepared....`"""
        for buffer in kernel.writes:
            self._statements.append(Statement(f"{self._name(buffer)} = {allocation(*allocate[buffer])}"))
        arguments = ", ".join(map(self._name, kernel.arguments))
        self._statements.append(Statement(f"{kernel.name}[{kernel.grid}, {kernel.block}]({arguments})"))
        for buffer in kernel.writes:
            self._made.append(self._names[buffer])
            self._names[buffer] = f"self.prepared.{self._names[buffer]}"

    def text(self) -> str:
        """The function, and blank lines behind it; "" where there is nothing to pack."""
        if not self._made:
            return ""
        packed = ", ".join(f'"{name}": {name}' for name in self._made)
        lines = printed([*self._statements, Statement(f"return {{{packed}}}")], 1)
        return "def prepare(self):\n" + "\n".join(lines) + "\n\n\n"


def allocation(shape: Sequence[Ix], dtype: str, maker: str = "empty") -> str:
    """The plan's text of a new tensor."""
    sizes = ", ".join(to_python(s) for s in shape)
    return f"torch.{maker}(({sizes}{',' if len(shape) == 1 else ''}), dtype=torch.{dtype})"
