"""Transposes by vectors on both sides of LDS, of 16 bytes or fewer, where sizes and types allow it.

A lane that moves one element at a time moves 4 bytes of the 16 it could, of half types 2. Here it loads a vector along
`a` and stores one along `b`. In LDS, 4-byte elements lie as in transpose.py; of half types a thread loads vectors of
two neighbouring lines and keeps their elements in pairs, one word each, so that LDS accesses are words. Vectors of half
types may be of one element on one side: 128 channels of 12321 positions are read by 16 bytes and stored one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.ir.index import Atom, Ix, Var, ix, replace
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.templates.access import other_strides
from hipwright.engine.templates.base import Body
from hipwright.engine.templates.sweep import VECTOR_LENGTH

HALVES = 8
"""Elements of 2 bytes in 16 bytes; where they do not divide a size, a vector has half or a quarter as many along it, or
one.
"""
RUN = 64
"""Elements of a line of a long tile that neighbouring threads take."""
NAMES = ("by_vectors", "out", "tb1", "v", "across", "tb_next")
Staged = dict[tuple[str, str], str]


def bracketed(text: str) -> str:
    """A size as C text, safe in products and comparisons."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def widths(body: Body, loads: Sequence[E], sizes: Sequence[Ix]) -> tuple[int, int] | None:
    """The elements of a vector along `a` and `b`; None where vectors do not apply: other sizes at capture, types of
    several widths, two results.

    loads: those staged in LDS; sizes: of the dimensions `a` and `b`.
    """
    dtypes = {e.attr[2] for e in loads} | {body.need.stores[m.item.name][1] for m in body.stored}
    found = {VECTOR_LENGTH.get(dtype, 4) for dtype in dtypes}
    if len(body.stored) != 1 or found not in ({4}, {HALVES}):
        return None
    options = (HALVES, 4, 2) if found == {HALVES} else (4,)
    along_a, along_b = (next((n for n in options if body.c.hint(size) % n == 0), 1) for size in sizes)
    wide = max(along_a, along_b) if found == {HALVES} else min(along_a, along_b)
    return (along_a, along_b) if wide > 1 else None


@dataclass(eq=False)
class VectorTranspose:
    """The transpose of one tile. sides: along `a` and `b`, as C texts; threads: the knob; widths: elements of a vector
    along `a` and `b`; names: of the tiles in LDS; tests: the statements that skip vectors outside, of loads and of
    stores; long: the text of a side along which lines are longer than neighbouring threads take; length: of dimension
    `b`.
    """

    body: Body
    loads: list[E]
    sides: tuple[str, str]
    threads: str
    widths: tuple[int, int]
    names: Staged
    tests: tuple[str, str]
    long: str
    length: Ix

    def conditions(self, sizes: Sequence[str]) -> str:
        """The run-time conditions: whole vectors, at aligned addresses and strides."""
        body = self.body
        out = [
            f"{bracketed(s)} % {n} == 0" for s, n in zip(sizes, self.widths, strict=True) if not s.isdigit() and n > 1
        ]
        (member,) = body.stored
        places = [(e.attr[0], e.attr[1], "ta") for e in self.loads]
        for buffer, position, axis in [*places, (body.need.stores[member.item.name][0], member.position, "tb")]:
            n = self.widths[axis == "tb"]
            if n == 1:
                continue
            out.append(f"is_wide_aligned<{n}>({body.pointers[buffer]})")
            out += [f"{bracketed(to_c(s))} % {n} == 0" for s in other_strides(position, axis) if (s.value or 1) % n]
        return " && ".join(dict.fromkeys(out))

    @property
    def used(self) -> set[str]:
        """The device functions that the text calls."""
        return {"wide.h"}

    @property
    def _pairs(self) -> bool:
        """Whether elements lie in LDS in pairs, two in a word."""
        return VECTOR_LENGTH.get(self.loads[0].attr[2], 4) == HALVES

    def declare(self) -> None:
        """Declares LDS for pairs."""
        if self._pairs:
            emit = self.body.emit
            self.names = {key: emit.fresh(f"{name}_words") for key, name in self.names.items()}
            for name in self.names.values():
                emit.line(f"__shared__ unsigned {name}[{self.sides[0]}][{self.sides[1]} / 2 + 1];")

    @contextmanager
    def _slots(self, run: str, n: int, lines: str) -> Iterator[None]:
        """Opens the loop over this thread's vectors of n, of `lines` lines, each of which is `run` elements long."""
        emit, count = self.body.emit, f"{run} / {n} * {lines}"
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < ({count} + {self.threads} - 1) / {self.threads}; ++k)")
        emit.line(f"const int slot = threadIdx.x + k * {self.threads};")
        emit.line(f"if (({count}) % {self.threads} && slot >= {count}) continue;")
        yield
        emit.close()

    def _places(self, side: str, n: int, lines: str) -> tuple[str, str]:
        """The first element along a side of the thread's vector of n, and its line, as C texts. Of a long side
        neighbouring threads take at most RUN elements, and go on with the next line, in another bank of LDS.
        """
        emit, run = self.body.emit, f"({side} < {RUN} ? {side} : {RUN})" if side == self.long else side
        emit.line(f"constexpr int across = {run} / {n};")
        emit.line(f"const int line = threadIdx.x / across + k * ({self.threads} / across);")
        start = f"threadIdx.x % across * {n}"
        if side != self.long:
            return start, "line"
        return f"line / {lines} * (across * {n}) + {start}", f"line % {lines}"

    def stage(self) -> None:
        """Writes the loads along `a` into LDS."""
        body, emit, n = self.body, self.body.emit, self.widths[0]
        (a, b), each = self.sides, 2 if self._pairs else 1
        lines = f"({b} / 2)" if self._pairs else b
        with self._slots(a, n, lines):
            place, line = self._places(a, n, lines)
            emit.line(f"const {body.index_type} ta = ta0 + {place}, tb = tb0 + {line}{' * 2' if self._pairs else ''};")
            emit.line(self.tests[0])
            single = self.widths[1] == 1  # the last line may have none beside it
            if single:
                size = emit.position(self.length)
                emit.line(f"const {body.index_type} tb_next = tb + 1 < {bracketed(size)} ? tb + 1 : tb;")
            for e in self.loads:
                name, pointer = self.names[e.attr[0], e.attr[1].key], body.pointers[e.attr[0]]
                vectors = []
                for step in range(each):
                    place = emit.position(_next_line(e.attr[1], step, single))
                    read = f"as_uint16({pointer} + {place})" if self._pairs else f"{pointer} + {place}"
                    vectors.append(f"{emit.fresh(('lo', 'hi')[step])}")
                    emit.line(f"const auto {vectors[-1]} = load_aligned<{n}>({read});")
                emit.line("#pragma unroll")
                value = f"{vectors[0]}.v[v]" + (f" | (unsigned){vectors[1]}.v[v] << 16" if self._pairs else "")
                place = "[ta - ta0 + v][(tb - tb0) / 2]" if self._pairs else "[tb - tb0][ta - ta0 + v]"
                emit.line(f"for (int v = 0; v < {n}; ++v) {name}{place} = {value};")

    def write(self) -> None:
        """Writes the results along `b`."""
        body, emit, n, plain = self.body, self.body.emit, self.widths[1], self.body.emit.read
        (member,) = body.stored
        buffer, dtype = body.need.stores[member.item.name]
        a, b = self.sides
        with self._slots(b, n, a):
            start, line = self._places(b, n, a)
            emit.line(f"const {body.index_type} ta = ta0 + {line}, tb1 = tb0 + {start};")
            emit.line(self.tests[1])
            for e in self.loads:
                self._gather(e)
            emit.line(f"WideVector<{STORAGE[dtype]}, {n}> out;")
            emit.line("#pragma unroll")
            emit.open(f"for (int v = 0; v < {n}; ++v)")
            emit.line(f"const {body.index_type} tb = tb1 + v;")

            def read(e: E, position: str) -> str:
                name = self.names.get((e.attr[0], e.attr[1].key))
                return f"{name}_row[v]" if name else plain(e, position)

            emit.read = read
            emit.count([member.value])
            emit.line(f"out.v[v] = {body.stored_value(member)};")
            emit.close()
            emit.read = plain
            place = emit.position(replace(member.position, _tb1))
            if n == 1:
                emit.line(f"{body.pointers[buffer]}[{place}] = out.v[0];")
            else:
                store = "store_whole" if self._pairs and n < HALVES else "store_aligned"
                emit.line(f"{store}<{n}>({body.pointers[buffer]} + {place}, out);")

    def _gather(self, e: E) -> None:
        """Declares a vector of the operand as it runs along `b`."""
        emit, n, kind = self.body.emit, self.widths[1], STORAGE[e.attr[2]]
        name = self.names[e.attr[0], e.attr[1].key]
        emit.line(f"{kind} {name}_row[{n}];")
        if n == 1:
            emit.line(f"__builtin_memcpy({name}_row, as_uint16({name}[ta - ta0]) + (tb1 - tb0), 2);")
            return
        emit.line("#pragma unroll")
        if self._pairs:
            emit.line(
                f"for (int v = 0; v < {n}; v += 2) "
                f"__builtin_memcpy({name}_row + v, &{name}[ta - ta0][(tb1 - tb0 + v) / 2], 4);"
            )
        else:
            emit.line(f"for (int v = 0; v < {n}; ++v) {name}_row[v] = {name}[tb1 - tb0 + v][ta - ta0];")


def _next_line(position: Ix, step: int, named: bool) -> Ix:
    """A position `step` lines on. named: the next line is the variable `tb_next`."""
    if not step:
        return position
    return replace(position, lambda a: _next(a, named) if isinstance(a, Var) and a.name == "tb" else None)


def _next(a: Var, named: bool) -> Ix:
    return ix(Var("tb_next", a.size)) if named else ix(a) + ix(1)


def _tb1(a: Atom) -> Ix | None:
    return ix(Var("tb1", a.size)) if isinstance(a, Var) and a.name == "tb" else None
