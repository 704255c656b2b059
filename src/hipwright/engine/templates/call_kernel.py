"""One kernel of a call template (call.py): its text, line by line, with operands and the epilogue printed into it.

Operands and what is fused behind are expressions over the template's own variables. Names in C that a template declares
itself are reserved when it asks for a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hipwright.engine.emit.builder import cname
from hipwright.engine.emit.device_code import included
from hipwright.engine.emit.function import KernelFunction, KernelParameter
from hipwright.engine.emit.statements import Emitter
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import STORAGE, E, walk
from hipwright.engine.ir.index import ONE, ZERO, Atom, Ind, Ix, Var, ix, replace
from hipwright.engine.ir.index_text import to_c, to_python
from hipwright.engine.ir.small_ints import LOADED
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.access import has_unit_stride, other_strides, shifted, unconditional_loads
from hipwright.engine.templates.base import EmittedKernel, fused
from hipwright.engine.templates.packed import packs, strides

if TYPE_CHECKING:
    from hipwright.engine.templates.call import CallBody

Place = Sequence[Ix | str | int]


class CallKernel:
    """One kernel's text. `line`, `open`, `close` write statements; `load`, `vector`, `epilogue` print expressions."""

    def __init__(self, body: CallBody, name: str, names: Sequence[str]) -> None:
        self.body = body
        self.c = body.c
        self.name = name
        self.kind = body.index_type
        self.pointers: dict[str, str] = {}
        self.written: set[str] = set()
        self.aligned: dict[str, int] = {}  # buffers that the template reads 16 bytes at once: elements of those
        self.device: dict[str, str] = {}
        self.rows: dict[str, str] = {}
        self.packs: dict[tuple[str, str], str] = {}
        self.asked: dict[tuple[str, str], str] = {}  # what the epilogue reads and has a name already
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

    def helper(self, *names: str) -> None:
        """Definitions of engine/device that the template's own text uses, by key (engine/emit/device_code.py)."""
        self.emit.used |= {(name, "") for name in names}

    def include(self, *keys: str) -> None:
        """Definitions of engine/device that follow the shared ones, in the order in which kernels include them."""
        self.device |= included(*keys)

    def define(self, name: str, text: str) -> None:
        """A device function or struct of the template's own, written once per program."""
        self.device[name] = text

    def _place(self, index: Place, sizes: Sequence[Ix]) -> list[Ix]:
        """An index of texts, numbers and expressions; a text is a variable in range."""
        pairs = zip(index, sizes, strict=True)
        return [ZERO if s == ONE else ix(Var(i, s)) if isinstance(i, str) else ix(i) for i, s in pairs]

    # ------------------------------------------------------------ operands

    def _read(self, e: E, position: str) -> str:
        found = self.packs.get((e.attr[0], e.attr[1].key))
        return found or f"{self.pointer(e.attr[0])}[{position}]"

    def load(self, operand: Tensor, index: Place, dtype: str = "") -> str:
        """An operand's element in its compute type, or as memory keeps `dtype`.

        The caller guards the index; what it shares is declared first.
        """
        return self._text(operand.at(self._place(index, operand.shape)), dtype)

    def _text(self, e: E, dtype: str) -> str:
        if dtype in ("float16", "bfloat16") and e.op == "load" and e.attr[2] == dtype:
            return self._read(e, self.emit.position(e.attr[1]))  # as it lies in memory
        self.emit.count([e])
        return _converted(dtype, self.emit.text(e)[0])

    def vector(
        self, operand: Tensor, index: Place, axis: str, width: str, into: str, *, dtype: str = "", aligned: bool = False
    ) -> None:
        """into[v] = operand at index with `axis` + v, for v < width (a C constant), all in range.

        `axis` is one of the index's names. What lies side by side is read as one pack, wide where the address allows;
        `aligned`: the kernel stands under `wide(...)`, so it does, if the axis is a multiple of width.
        """
        e = operand.at(self._place(index, operand.shape))
        self._packed([e], axis, width, aligned)
        (moved,) = self._moved([e], axis)
        self._each(width)
        self.line(f"{into}[v] = {self._text(moved, dtype)};")
        self._end()

    def plain(self, operand: Tensor, index: Place, dtype: str) -> tuple[str, Ix] | None:
        """(pointer, position) of an operand that is read as it lies in memory, in that dtype; else None."""
        e = operand.at(self._place(index, operand.shape))
        return (self.pointer(e.attr[0]), e.attr[1]) if e.op == "load" and e.attr[2] == dtype else None

    def wide(self, operand: Tensor, index: Place, axis: str, width: str, *, address: bool = True) -> list[str]:
        """What must hold at run time for wide reads of an operand along an axis: strides, and addresses unless the
        caller has the plan copy unaligned ones (`lines_up`); C texts.
        """
        out: list[str] = []
        self.include("WideVector")
        for e in unconditional_loads([operand.at(self._place(index, operand.shape))]):
            buffer, position, _ = e.attr
            if has_unit_stride(position, axis):
                out += self._suits(buffer, position, axis, width)[0 if address else 1 :]
        return list(dict.fromkeys(out))

    def _suits(self, buffer: str, position: Ix, axis: str, width: str) -> list[str]:
        """The same of one access that runs along the axis."""
        odd = [
            stride
            for stride in other_strides(position, axis)
            if not (width.isdigit() and stride.value is not None and stride.value % int(width) == 0)
        ]
        tests = [f"{self.size(stride)} % {width} == 0" for stride in odd]
        return [f"is_wide_aligned<{width}>({self.pointer(buffer)})", *tests]

    def lines_up(self, operand: Tensor, index: Place, axis: str, width: int) -> None:
        """Have the plan copy what `wide` would find at an address that does not suit."""
        for e in unconditional_loads([operand.at(self._place(index, operand.shape))]):
            if has_unit_stride(e.attr[1], axis):
                self.aligned[e.attr[0]] = width

    def wide_stores(self, index: Place, axis: str, width: str) -> list[str]:
        """What must hold at run time for `epilogue_vector(..., aligned=True)` along an axis, as C texts."""
        self.include("WideVector")
        members, _, positions = self._members(index, "")
        out: list[str] = []
        for member, position in zip(members, positions, strict=True):
            if has_unit_stride(position, axis):
                out += self._suits(self.body.need.stores[member.item.name][0], position, axis, width)
        return list(dict.fromkeys(out))

    def packed(self, operand: Tensor, index: Place, axis: str, width: int, into: str) -> None:
        """As `vector`, under `packed_wide(...)`, of an operand of which one element in memory makes several."""
        found = packs(self.c, operand.at(self._place(index, operand.shape)), axis, width)
        assert found is not None
        self.line(f"const {self.kind} {axis}_pack = {axis} / {width};")
        for pack in found.packs:
            buffer, position, _ = pack.load.attr
            if (buffer, position.key) not in self.packs:
                name = self.emit.fresh(f"{self.pointer(buffer)}_pack")
                place = self.emit.position(pack.base)
                loader = self._loader(name, pack.load, str(pack.count), aligned=True)
                self.line(f"const auto {name} = {loader}<{pack.count}>({self.pointer(buffer)} + {place});")
                self.packs[buffer, position.key] = f"{name}.v[v / {pack.share}]"
        self._each(str(width))
        self.line(f"{into}[v] = {self._text(found.element, '')};")
        self._end()

    def packed_wide(self, operand: Tensor, index: Place, axis: str, width: int) -> list[str]:
        """What must hold at run time for `packed`, as C texts."""
        self.include("WideVector")
        found = packs(self.c, operand.at(self._place(index, operand.shape)), axis, width)
        assert found is not None
        out = [f"{self.size(s)} % {width} == 0" for s in found.multiples]
        for pack in found.packs:
            out.append(f"is_wide_aligned<{pack.count}>({self.pointer(pack.load.attr[0])})")
            out += [f"{self.size(s)} % {pack.count} == 0" for s in strides(pack)]
        return list(dict.fromkeys(out))

    def contiguous(self, operand: Tensor, axis: int) -> bool:
        """Does a load of the operand walk memory element by element along a dimension?"""
        variables = [self.c.arena.var("p", s) for s in operand.shape]
        elements = walk([operand.at([ix(v) for v in variables])])
        return any(e.op == "load" and has_unit_stride(e.attr[1], variables[axis].name) for e in elements)

    def _packed(self, values: Sequence[E], axis: str, width: str, aligned: bool = False) -> None:
        """Read the packs of the loads that walk along the axis."""
        self.include("WideVector")
        for e in unconditional_loads(values):
            buffer, position, _ = e.attr
            moved = replace(position, lambda a: shifted(a, axis))
            if has_unit_stride(position, axis) and (buffer, moved.key) not in self.packs:
                name = self.emit.fresh(f"{self.pointer(buffer)}_wide")
                loader = self._loader(name, e, width, aligned=aligned)
                self.line(
                    f"const auto {name} = {loader}<{width}>({self.pointer(buffer)} + {self.emit.position(position)});"
                )
                self.packs[buffer, moved.key] = f"{name}.v[v]"

    def _loader(self, name: str, load: E, width: str, *, aligned: bool) -> str:
        """The device function that reads a pack, which is called `name`."""
        if aligned and load.attr[2] in LOADED and width.isdigit() and int(width) % 4 == 0:
            self.include("ByteWords")
            self.emit.bytes.add(name)
            return "load_bytes"
        return "load_aligned" if aligned else "load_wide"

    def _moved(self, values: Sequence[E], axis: str) -> list[E]:
        return self.c.arena.rewrite(list(values), lambda a: shifted(a, axis), lambda e: None)

    def _each(self, width: str) -> None:
        self.emit.taken.add("v")
        self.line("#pragma unroll")
        self.open(f"for (int v = 0; v < {width}; ++v)")

    def _end(self) -> None:
        self.close()
        self.packs = {}

    # ------------------------------------------------------------ outputs

    def store(self, number: int, position: str, value: str) -> None:
        """output `number`[position] = value, if anyone needs it (with whole=True)."""
        buffer = self.body.stored(number)
        if buffer is not None:
            item = self.body.placed.items[number]
            self.line(self._store(buffer, item.dtype, position, value))

    def _store(self, buffer: str, dtype: str, position: str, value: str) -> str:
        self.written.add(buffer)
        return f"{self.pointer(buffer)}[{position}] = {_converted(dtype, value)};"

    def _members(self, index: Place, value: str) -> tuple[list[GroupMember], list[E], list[Ix]]:
        """What must be stored, over the template's index."""
        group = self.body.group
        places = self._place(index, group.space)
        table: dict[Atom, Ix] = dict(zip(group.variables, places, strict=True))
        members = [m for m in group.members if m.item.name in self.body.need.stores]
        values = self.c.arena.rewrite([m.value for m in members], table.get, lambda e: None)
        self.rows[group.items[0].name] = value
        return members, values, [replace(m.position, table.get) for m in members]

    def ahead(self, index: Place) -> dict[str, E]:
        """Names, declared here, for what `epilogue` at this index certainly reads; `fill_ahead` reads it."""
        _, values, _ = self._members(index, "")
        names: dict[str, E] = {}
        for e in unconditional_loads(values):
            buffer, position, dtype = e.attr
            if (buffer, position.key) not in self.asked and not any(isinstance(a, Ind) for a in position.atoms()):
                name = self.asked[buffer, position.key] = self.fresh(f"{self.pointer(buffer)}_ahead")
                self.line(f"{STORAGE[dtype]} {name} = {{}};")
                names[name] = e
        return names

    def fill_ahead(self, names: Mapping[str, E]) -> None:
        """Read what `ahead` has named, where its index is in range."""
        for name, e in names.items():
            self.line(f"{name} = {self.pointer(e.attr[0])}[{self.emit.position(e.attr[1])}];")

    def epilogue(self, value: str, index: Place) -> None:
        """Store the output and everything fused behind it at one index of the first output's space, which is in range.

        value: a C expression without side effects, in the compute type (float for half).
        """
        members, values, positions = self._members(index, value)
        self.emit.scopes.append({})
        self.emit.count(values)
        self.packs = dict(self.asked)
        for member, e, position in zip(members, values, positions, strict=True):
            buffer, dtype = self.body.need.stores[member.item.name]
            text = self.emit.text(e)[0]
            self.line(self._store(buffer, dtype, self.emit.position(position), text))
        self.packs = {}
        self.emit.scopes.pop()

    def epilogue_vector(self, value: str, index: Place, axis: str, width: str, *, aligned: bool = False) -> None:
        """The same for `width` neighbours along `axis` (a name in index), all in range. value: may use `v`.

        aligned: the kernel stands under `wide_stores(...)`.
        """
        members, values, positions = self._members(index, value)
        self.emit.scopes.append({})
        self._packed(values, axis, width)
        outs: dict[int, str] = {}
        for number, (member, position) in enumerate(zip(members, positions, strict=True)):
            buffer, dtype = self.body.need.stores[member.item.name]
            if has_unit_stride(position, axis):
                outs[number] = self.emit.fresh(f"{self.pointer(buffer)}_wide")
                self.line(f"WideVector<{STORAGE[dtype]}, {width}> {outs[number]};")
        moved = self._moved(values, axis)
        self._each(width)
        self.emit.count(moved)
        for number, (member, e, position) in enumerate(zip(members, moved, positions, strict=True)):
            buffer, dtype = self.body.need.stores[member.item.name]
            text = self.emit.text(e)[0]
            if number in outs:
                self.line(f"{outs[number]}.v[v] = {_converted(dtype, text)};")
            else:
                place = self.emit.position(replace(position, lambda a: shifted(a, axis)))
                self.line(self._store(buffer, dtype, place, text))
        self._end()
        for number, name in outs.items():
            buffer = self.body.need.stores[members[number].item.name][0]
            self.written.add(buffer)
            storer = "store_aligned" if aligned else "store_wide"
            self.line(f"{storer}<{width}>({self.pointer(buffer)} + {self.emit.position(positions[number])}, {name});")
        if aligned:
            self.include("store_aligned")
        self.emit.scopes.pop()

    # ------------------------------------------------------------ the whole

    def finish(self, grid: str, block: str, bounds: str, comment: str = "", lds: str = "") -> EmittedKernel:
        """The kernel. grid, block, lds: plan texts (`//` divides; tuples are legal); bounds: the block as C text."""
        title = f"{fused(self.body.group)}{': ' + comment if comment else ''}"
        function = KernelFunction(self.name, title, bounds, [], self.emit.body)
        symbols = sorted(s for s in self.c.hints if s in function.names)
        for buffer, name in self.pointers.items():
            constant = "" if buffer in self.written else "const "
            kind = f"{constant}{STORAGE[self.body.dtype(buffer)]}* __restrict__"
            function.parameters.append(KernelParameter(kind, name))
        function.parameters += [KernelParameter(self.kind, s) for s in symbols]
        reads = [b for b in self.pointers if b not in self.written]
        out = EmittedKernel(
            self.name,
            function,
            grid,
            block,
            [*self.pointers, *symbols],
            self.emit.used,
            set(),
            reads,
            [b for b in self.pointers if b in self.written],
        )
        out.lds, out.device, out.aligned = lds, self.device, self.aligned
        return out


def factor(size: Ix) -> str:
    """A size in a product of the plan."""
    text = to_python(size)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _converted(dtype: str, value: str) -> str:
    return f"{STORAGE[dtype]}({value})" if dtype in ("float16", "bfloat16") else value
