"""Tiles of half types for attention by tensor cores, copied into LDS as they are, the next one while one is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.index import Var, ix
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.problem import vector_width
from hipwright.engine.templates.call_kernel import CallKernel


def is_stored(operand: Tensor) -> bool:
    """Whether rows of a half type are read from memory 16 bytes at a time."""
    index = [ix(Var(f"p{k}", s)) for k, s in enumerate(operand.shape)]
    return operand.at(index).op == "load" and vector_width(operand, operand.shape[-1].value or 1) == 8


@dataclass
class CopiedTiles:
    """Writes the copies of a kernel of `threads` threads. length: of the keys, as C text."""

    kernel: CallKernel
    threads: int
    length: str

    def queries(self, operand: Tensor, lead: Sequence[str], rows: int, length: str) -> None:
        """Copies the block's queries to `k_tile`."""
        self._copy(operand, [*lead, "m", "d"], (str(rows), "D", "k_tile", "KSTRIDE"), ("m", "m0", length))
        self.kernel.line("cp_async_commit();")
        self.kernel.line("cp_async_wait_group<0>();")

    def open(self, keys: Tensor, values: Tensor, lead: Sequence[str]) -> None:
        """Opens the loop over the tiles, with `k_tile` and `v_tile` of two stages that take turns."""
        kernel = self.kernel
        kernel.use("cp_async_16_or_zero", "cp_async_commit", "cp_async_wait_group")
        kernel.line("Part* const first_tile = k_tile;")
        kernel.line("__syncthreads();  // all have read the queries")
        self._ahead(keys, values, lead, "0", "first_tile")
        kernel.open(f"for ({kernel.kind} n0 = 0; n0 < n_end; n0 += KEYS)")
        kernel.line("const int stage = n0 / KEYS % 2;")
        kernel.open("if (n0 + KEYS < n_end)")
        self._ahead(keys, values, lead, "n0 + KEYS", "first_tile + (1 - stage) * (KPLANE + VPLANE)")
        kernel.close()
        kernel.open("else")
        kernel.line("cp_async_commit();")
        kernel.close()
        kernel.line("cp_async_wait_group<1>();")
        kernel.line("__syncthreads();")
        kernel.line("k_tile = first_tile + stage * (KPLANE + VPLANE), v_tile = k_tile + KPLANE;")

    def _ahead(self, keys: Tensor, values: Tensor, lead: Sequence[str], first: str, target: str) -> None:
        """Begins to copy the tiles of keys and values from row `first` on."""
        kernel = self.kernel
        kernel.open("")
        kernel.line(f"Part* const ahead = {target};")
        rows = ("n", first, self.length)
        self._copy(keys, [*lead, "n", "d"], ("KEYS", "D", "ahead", "KSTRIDE"), rows)
        self._copy(values, [*lead, "n", "d"], ("KEYS", "DV", "ahead + KPLANE", "VSTRIDE"), rows)
        kernel.line("cp_async_commit();")
        kernel.close()

    def _copy(
        self, operand: Tensor, place: Sequence[str], tile: tuple[str, str, str, str], rows: tuple[str, str, str]
    ) -> None:
        """Begins to copy one tile (rows, columns, where to, its stride); rows: (name, the first, how many)."""
        kernel = self.kernel
        count, width, target, stride = tile
        row, first, end = rows
        e = operand.at([ix(Var(name, size)) for name, size in zip(place, operand.shape, strict=True)])
        buffer, position, _ = e.attr
        kernel.aligned[buffer] = 8
        kernel.line("#pragma unroll 4")
        kernel.open(f"for (int i = threadIdx.x; i < {count} * ({width} / 8); i += {self.threads})")
        kernel.line(f"const int r = i / ({width} / 8), d = i % ({width} / 8) * 8;")
        kernel.line(f"const bool inside = {first} + r < {end};")
        kernel.line(f"const {kernel.kind} {row} = inside ? {first} + r : 0;")
        source = f"{kernel.pointer(buffer)} + {to_c(position)}"
        kernel.line(f"cp_async_16_or_zero({target} + r * {stride} + d, {source}, inside);")
        kernel.close()


__all__ = ["CopiedTiles", "is_stored"]
