"""How a call template's kernel loads its operands: elements and vectors, printed as C.

Operands are expressions over the template's own variables, so that a prologue is computed where an operand is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hipwright.engine.emit.builder import cname, element_text
from hipwright.engine.emit.statements import Emitter
from hipwright.engine.ir.expr import BIT_WORD, ROUNDING, STORAGE, E, walk
from hipwright.engine.ir.index import ONE, ZERO, Ix, Var, ix, replace
from hipwright.engine.ir.index_text import to_c
from hipwright.engine.ir.small_ints import LOADED
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.access import has_unit_stride, other_strides, shifted, unconditional_loads
from hipwright.engine.templates.base import WORDS_ALIGNED, fast_functions
from hipwright.engine.templates.call_scope import CallScope
from hipwright.engine.templates.packed import alignment_strides, packed_element
from hipwright.engine.templates.reciprocals import approximates, without_divisions
from hipwright.float8 import FLOAT8

EIGHT_BITS = frozenset(ROUNDING[dtype] for dtype in FLOAT8)
"""Roundings to 8-bit floats."""
Place = Sequence[Ix | str | int]
"""An index of numbers, expressions, and texts: names of C variables that are in range."""


class CallOperands:
    """Builds a kernel's statements and loads of operands. `line`, `open`, `close` write statements."""

    def __init__(self, body: CallScope, name: str, names: Sequence[str]) -> None:
        self.body = body
        self.c = body.c
        self.name = name
        self.kind = body.index_type
        self.pointers: dict[str, str] = {}
        self.written: set[str] = set()
        self.aligned: dict[str, int] = {}  # buffers that the template reads 16 bytes at once: elements of those
        self.device: dict[str, str] = {}
        self.rows: dict[str, str] = {}
        self.loaded: dict[tuple[str, str], str] = {}
        self.prefetched: dict[tuple[str, str], str] = {}  # what the epilogue reads and has a name already
        self.emit = Emitter(self._read, lambda row: self.rows[row], self.kind)
        self.emit.taken |= {*names, *self.c.hints}
        self.line, self.open, self.close, self.fresh = (
            self.emit.line,
            self.emit.open,
            self.emit.close,
            self.emit.fresh,
        )

    # ------------------------------------------------------------ names

    def pointer(self, buffer: str) -> str:
        """The parameter that points to a buffer."""
        if buffer not in self.pointers:
            self.pointers[buffer] = self.emit.fresh(cname(buffer))
        return self.pointers[buffer]

    def size(self, size: Ix) -> str:
        """A size as C text, safe in products and comparisons."""
        text = to_c(size)
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def use(self, *names: str) -> None:
        """Uses definitions of the device headers in the template's own text, by C name (engine/emit/device_code.py)."""
        self.emit.used |= set(names)

    def define(self, name: str, text: str) -> None:
        """Defines a device function or struct of the template's own, once per program."""
        self.device[name] = text

    def _place(self, index: Place, sizes: Sequence[Ix]) -> list[Ix]:
        """An index as expressions; a text is a variable in range."""
        pairs = zip(index, sizes, strict=True)
        return [ZERO if s == ONE else ix(Var(i, s)) if isinstance(i, str) else ix(i) for i, s in pairs]

    # ------------------------------------------------------------ operands

    def _read(self, e: E, position: str) -> str:
        found = self.loaded.get((e.attr[0], e.attr[1].key))
        if e.attr[2] == BIT_WORD:
            self.aligned[e.attr[0]] = WORDS_ALIGNED
        return found or element_text(self.pointer(e.attr[0]), position, e.attr[2])

    def load(self, operand: Tensor, index: Place, dtype: str = "") -> str:
        """An operand's element as text, in its compute type or as memory holds `dtype`.

        The caller guards the index; shared subexpressions are declared first.
        """
        return self._text(operand.at(self._place(index, operand.shape)), dtype)

    def approximated(self, values: Sequence[E]) -> list[E]:
        """Values as a kernel whose results are all half types computes them: by approximate quotients and functions,
        unless they are rounded to 8 bits, which tells them from exact ones.
        """
        if not approximates(self.body.need) or any(e.op == "fn" and e.attr in EIGHT_BITS for e in walk(values)):
            return list(values)
        found = without_divisions(self.c, values, lambda e: True)
        self.emit.instead |= fast_functions(found)
        return found

    def _text(self, e: E, dtype: str) -> str:
        (e,) = self.approximated([e])
        while dtype in ROUNDING and e.op == "fn" and e.attr == ROUNDING[dtype] and self.emit.known(e) is None:
            (e,) = e.args  # the conversion rounds
        if dtype in ROUNDING and e.op == "load" and e.attr[2] == dtype:
            return self._read(e, self.emit.position(e.attr[1]))  # as it lies in memory
        self.emit.count([e])
        return converted(dtype, self.emit.text(e)[0])

    def vector(
        self, operand: Tensor, index: Place, axis: str, width: str, into: str, *, dtype: str = "", aligned: bool = False
    ) -> None:
        """Writes into[v] = operand at index with `axis` + v, for v < width (a C constant), all in range.

        `axis` is one of the index's names. Contiguous elements are loaded as one vector, 16 bytes at a time where the
        address allows it. aligned: `vector_conditions` hold and the axis is a multiple of width, so that no address is
        tested.
        """
        self.vectors(operand, [index], axis, width, [into], dtype=dtype, aligned=aligned)

    def vectors(
        self,
        operand: Tensor,
        places: Sequence[Place],
        axis: str,
        width: str,
        into: Sequence[str],
        *,
        dtype: str = "",
        aligned: bool = False,
    ) -> None:
        """The same for several places of an operand, all loads first; what they share is loaded once."""
        elements = [operand.at(self._place(index, operand.shape)) for index in places]
        self._load_vectors(elements, axis, width, aligned)
        self._open_vector_loop(width)
        for name, moved in zip(into, self._shifted(elements, axis), strict=True):
            self.line(f"{name}[v] = {self._text(moved, dtype)};")
        self._close_vector_loop()

    def early(self, operand: Tensor, index: Place) -> list[E]:
        """Writes the loads that an operand's element certainly needs, before statements that do not need it."""
        found = list(unconditional_loads([operand.at(self._place(index, operand.shape))]))
        for e in found:
            self.emit.bind(e)
        return found

    def behind_loads(self, loads: Sequence[E]) -> None:
        """Writes that what `early` has loaded is not waited for before this place, in the open block."""
        self.use("behind_loads")
        for e in dict.fromkeys(loads):
            early = self.emit.bind(e)
            late = self.fresh(f"{early}_late")
            self.line(f"const {e.ctype} {late} = behind_loads({early});")
            self.emit.name(e, late)

    def unconverted(self, operand: Tensor, index: Place, dtype: str) -> tuple[str, Ix] | None:
        """(pointer, position) of an operand that is loaded without conversion from memory of that dtype, else None."""
        e = operand.at(self._place(index, operand.shape))
        return (self.pointer(e.attr[0]), e.attr[1]) if e.op == "load" and e.attr[2] == dtype else None

    def vector_conditions(
        self, operand: Tensor, index: Place, axis: str, width: str, *, address: bool = True
    ) -> list[str]:
        """The run-time conditions of aligned vectors of an operand along an axis, as C texts.

        address: whether the address is tested; if not, the plan copies unaligned tensors (`copy_unaligned`).
        """
        out: list[str] = []
        self.use("WideVector")
        for e in unconditional_loads([operand.at(self._place(index, operand.shape))]):
            buffer, position, _ = e.attr
            if has_unit_stride(position, axis):
                out += self._alignment(buffer, position, axis, width)[0 if address else 1 :]
        return list(dict.fromkeys(out))

    def _alignment(self, buffer: str, position: Ix, axis: str, width: str) -> list[str]:
        """The conditions for one access that runs along the axis: its address, then its strides."""
        unaligned = [
            stride
            for stride in other_strides(position, axis)
            if not (width.isdigit() and stride.value is not None and stride.value % int(width) == 0)
        ]
        tests = [f"{self.size(stride)} % {width} == 0" for stride in unaligned]
        return [f"is_wide_aligned<{width}>({self.pointer(buffer)})", *tests]

    def copy_unaligned(self, operand: Tensor, index: Place, axis: str, width: int) -> None:
        """Makes the plan copy tensors at addresses at which `vector_conditions` do not hold."""
        for e in unconditional_loads([operand.at(self._place(index, operand.shape))]):
            if has_unit_stride(e.attr[1], axis):
                self.aligned[e.attr[0]] = width

    def unpacked_vector(
        self, operand: Tensor, index: Place, axis: str, width: int, into: str, dtype: str = "", *, loose: bool = False
    ) -> None:
        """As `vector` with aligned=True, under `unpacked_conditions`, of an operand of which one stored element makes
        several.
        """
        found = packed_element(self.c, operand.at(self._place(index, operand.shape)), axis, width, loose=loose)
        assert found is not None
        self.line(f"const {self.kind} {axis}_vector = {axis} / {width};")
        for packed in found.loads:
            buffer, position, _ = packed.load.attr
            if not packed.alone and (buffer, position.key) not in self.loaded:
                name = self.emit.fresh(f"{self.pointer(buffer)}_packed")
                place = self.emit.position(packed.base)
                loader = self._loader(name, packed.load, str(packed.count), aligned=True)
                self.line(f"const auto {name} = {loader}<{packed.count}>({self.pointer(buffer)} + {place});")
                self.loaded[buffer, position.key] = f"{name}.v[v / {packed.share}]"
        self._open_vector_loop(str(width))
        self.line(f"{into}[v] = {self._text(found.element, dtype)};")
        self._close_vector_loop()

    def unpacked_conditions(
        self, operand: Tensor, index: Place, axis: str, width: int, *, loose: bool = False
    ) -> list[str]:
        """The run-time conditions of `unpacked_vector`, as C texts."""
        self.use("WideVector")
        found = packed_element(self.c, operand.at(self._place(index, operand.shape)), axis, width, loose=loose)
        assert found is not None
        out = [f"{self.size(s)} % {width} == 0" for s in found.multiples]
        for packed in (load for load in found.loads if not load.alone):
            out.append(f"is_wide_aligned<{packed.count}>({self.pointer(packed.load.attr[0])})")
            out += [f"{self.size(s)} % {packed.count} == 0" for s in alignment_strides(packed)]
        return list(dict.fromkeys(out))

    def runs_along(self, operand: Tensor, axis: int) -> bool:
        """Whether a load of the operand has unit stride along a dimension."""
        variables = [self.c.arena.var("p", s) for s in operand.shape]
        elements = walk([operand.at([ix(v) for v in variables])])
        return any(e.op == "load" and has_unit_stride(e.attr[1], variables[axis].name) for e in elements)

    def _load_vectors(self, values: Sequence[E], axis: str, width: str, aligned: bool = False) -> None:
        """Writes loads of vectors for the accesses of unit stride along the axis."""
        self.use("WideVector")
        for e in unconditional_loads(values):
            buffer, position, _ = e.attr
            moved = replace(position, lambda a: shifted(a, axis))
            if has_unit_stride(position, axis) and (buffer, moved.key) not in self.loaded:
                name = self.emit.fresh(f"{self.pointer(buffer)}_wide")
                loader = self._loader(name, e, width, aligned=aligned)
                self.line(
                    f"const auto {name} = {loader}<{width}>({self.pointer(buffer)} + {self.emit.position(position)});"
                )
                self.loaded[buffer, moved.key] = f"{name}.v[v]"

    def _loader(self, name: str, load: E, width: str, *, aligned: bool) -> str:
        """The device function that loads a vector, which will be called `name`."""
        if aligned and load.attr[2] in LOADED and width.isdigit() and int(width) % 4 == 0:
            self.use("ByteWords")
            self.emit.bytes.add(name)
            return "load_bytes"
        return "load_aligned" if aligned else "load_wide"

    def _shifted(self, values: Sequence[E], axis: str) -> list[E]:
        return self.c.arena.rewrite(list(values), lambda a: shifted(a, axis), lambda e: None)

    def _open_vector_loop(self, width: str) -> None:
        self.emit.taken.add("v")
        self.line("#pragma unroll")
        self.open(f"for (int v = 0; v < {width}; ++v)")

    def _close_vector_loop(self) -> None:
        self.close()
        self.loaded = {}


def converted(dtype: str, value: str) -> str:
    """A value as memory of a dtype holds it: narrow floats are converted."""
    return f"{STORAGE[dtype]}({value})" if dtype in ROUNDING else value
