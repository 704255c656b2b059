"""One kernel of a call template: its statements, with operands (call_operands.py) and the epilogue in them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hipwright.engine.emit.function import KernelFunction, KernelParameter
from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import BIT_WORD, STORAGE, E
from hipwright.engine.ir.index import Atom, Ind, Ix, replace
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.access import has_unit_stride, shifted, unconditional_loads
from hipwright.engine.templates.base import EmittedKernel, fused
from hipwright.engine.templates.call_operands import CallOperands, Place, converted


class CallKernel(CallOperands):
    """One kernel. `line`, `open`, `close` write statements; `load`, `vector`, `epilogue` print expressions."""

    # ------------------------------------------------------------ outputs

    def vector_store_conditions(self, index: Place, axis: str, width: str) -> list[str]:
        """The run-time conditions of `epilogue_vector(..., aligned=True)` along an axis, as C texts."""
        self.use("WideVector")
        members, _, positions = self._members(index, "")
        out: list[str] = []
        for member, position in zip(members, positions, strict=True):
            if has_unit_stride(position, axis):
                out += self._alignment(self.body.need.stores[member.item.name][0], position, axis, width)
        return list(dict.fromkeys(out))

    def store_conditions(self, buffer: str, position: Ix, axis: str, width: str) -> list[str]:
        """The run-time conditions of a `store_aligned` of a template's own along an axis, as C texts."""
        return self._alignment(buffer, position, axis, width)

    def store(self, number: int, position: str, value: str) -> None:
        """Writes output `number`[position] = value, if anything needs it (with whole=True)."""
        buffer = self.body.stored(number)
        if buffer is not None:
            item = self.body.placed.items[number]
            self.line(self._store(buffer, item.dtype, position, value))

    def _store(self, buffer: str, dtype: str, position: str, value: str) -> str:
        self.written.add(buffer)
        return f"{self.pointer(buffer)}[{position}] = {converted(dtype, value)};"

    def _members(self, index: Place, value: str) -> tuple[list[GroupMember], list[E], list[Ix]]:
        """The members that are stored, with their values and positions over the template's index."""
        group = self.body.group
        table = self.variables_at(index)
        members = [m for m in group.members if m.item.name in self.body.need.stores and m.item.kind != "tiles"]
        values = self.approximated(self.c.arena.rewrite([m.value for m in members], table.get, lambda e: None))
        self.rows[group.items[0].name] = value
        return members, values, [replace(m.position, table.get) for m in members]

    def variables_at(self, index: Place) -> dict[Atom, Ix]:
        """The group's variables at an index of the first output's space."""
        group = self.body.group
        return dict(zip(group.variables, self._place(index, group.space), strict=True))

    def declare_prefetch(self, index: Place) -> dict[str, E]:
        """Declares variables for the loads that `epilogue` at this index certainly performs; `prefetch` fills them."""
        _, values, _ = self._members(index, "")
        names: dict[str, E] = {}
        for e in unconditional_loads(values):
            buffer, position, dtype = e.attr
            known = dtype == BIT_WORD or (buffer, position.key) in self.prefetched
            if not known and not any(isinstance(a, Ind) for a in position.atoms()):
                name = self.prefetched[buffer, position.key] = self.fresh(f"{self.pointer(buffer)}_early")
                self.line(f"{STORAGE[dtype]} {name} = {{}};")
                names[name] = e
        return names

    def prefetch(self, names: Mapping[str, E]) -> None:
        """Writes the loads of the variables of `declare_prefetch`, where their index is in range."""
        for name, e in names.items():
            self.line(f"{name} = {self.pointer(e.attr[0])}[{self.emit.position(e.attr[1])}];")

    def epilogue(self, value: str, index: Place) -> None:
        """Writes the stores of the output and of all that is fused after it, at one index of the first output's space.

        The index is in range. value: a C expression without side effects, in the compute type (float for half).
        """
        members, values, positions = self._members(index, value)
        self.emit.scopes.append({})
        self.emit.count(values)
        self.loaded = dict(self.prefetched)
        for member, e, position in zip(members, values, positions, strict=True):
            buffer, dtype = self.body.need.stores[member.item.name]
            text = self.emit.text(e)[0]
            self.line(self._store(buffer, dtype, self.emit.position(position), text))
        self.loaded = {}
        self.emit.scopes.pop()

    def epilogue_vector(self, value: str, index: Place, axis: str, width: str, *, aligned: bool = False) -> None:
        """Writes the epilogue of `width` neighbours along `axis` (a name in index), all in range. value: may use `v`.

        aligned: `vector_store_conditions` hold.
        """
        members, values, positions = self._members(index, value)
        self.emit.scopes.append({})
        self._load_vectors(values, axis, width)
        outs: dict[int, str] = {}
        for number, (member, position) in enumerate(zip(members, positions, strict=True)):
            buffer, dtype = self.body.need.stores[member.item.name]
            if has_unit_stride(position, axis):
                outs[number] = self.emit.fresh(f"{self.pointer(buffer)}_wide")
                self.line(f"WideVector<{STORAGE[dtype]}, {width}> {outs[number]};")
        moved = self._shifted(values, axis)
        self._open_vector_loop(width)
        self.emit.count(moved)
        for number, (member, e, position) in enumerate(zip(members, moved, positions, strict=True)):
            buffer, dtype = self.body.need.stores[member.item.name]
            text = self.emit.text(e)[0]
            if number in outs:
                self.line(f"{outs[number]}.v[v] = {converted(dtype, text)};")
            else:
                place = self.emit.position(replace(position, lambda a: shifted(a, axis)))
                self.line(self._store(buffer, dtype, place, text))
        self._close_vector_loop()
        for number, name in outs.items():
            buffer = self.body.need.stores[members[number].item.name][0]
            self.written.add(buffer)
            storer = "store_aligned" if aligned else "store_wide"
            self.line(f"{storer}<{width}>({self.pointer(buffer)} + {self.emit.position(positions[number])}, {name});")
        if aligned:
            self.use("store_aligned")
        self.emit.scopes.pop()

    # ------------------------------------------------------------ the whole

    def finish(self, grid: str, block: str, bounds: str, comment: str = "", lds: str = "") -> EmittedKernel:
        """The finished kernel. grid, block, lds: plan texts (`//` divides; tuples are allowed); bounds: the block as C
        text.
        """
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
    """A size as a factor in the plan."""
    text = to_python(size)
    return text if re.fullmatch(r"\w+", text) else f"({text})"
