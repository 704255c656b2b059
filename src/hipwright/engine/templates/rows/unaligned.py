"""Unaligned rows: head and tail are peeled and processed one element per thread, the interior in aligned vectors.

A row of 50257 half-type elements begins at another offset within 16 bytes than the row before it, and NVIDIA loads such
vectors element by element. Where every access along the row begins where the row does, all have the same boundaries:
head and tail are less than two vectors, which the first threads process in addition to their tiles. Compilers have
peeled loops over misaligned memory like this since they vectorise (Larsen & Amarasinghe, PLDI 2000). The plan copies an
input that begins between two vectors.
"""

from __future__ import annotations

from hipwright.engine.emit.statements import Emitter
from hipwright.engine.templates.sweep import Sweep

NAMES = {"to_boundary", "head", "interior"}


class PeeledRows:
    """The head and tail of a kernel's rows. writing: whether their elements are being written."""

    def __init__(self, sweep: Sweep, vec: str) -> None:
        self.sweep, self.vec, self.writing = sweep, vec, False

    def declare(self, emit: Emitter, kind: str) -> None:
        """Declares the lengths of head and interior; from here on the row's loop covers the interior alone."""
        sweep, vec, length = self.sweep, self.vec, self.sweep.length
        (start,) = sweep.row_starts.values()
        emit.line(f"const {kind} to_boundary = ({vec} - ({start}) % {vec}) % {vec};")
        emit.line(f"const {kind} head = to_boundary < {length} ? to_boundary : {length};  // before the first vector")
        emit.line(f"const {kind} interior = ({length} - head) / {vec} * {vec};  // whole aligned vectors")
        sweep.length, sweep.max_length, sweep.offset = "interior", length, "head"

    def minimum(self) -> str:
        """The least length of the interior, from sizes alone."""
        return f"({self.sweep.max_length} - 2 * {self.vec} + 2)"

    def array(self, name: str) -> str:
        """The array of a kept value: elements of head and tail have their own."""
        return f"{name}_peel" if self.writing else name
