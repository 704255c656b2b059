"""What all scan kernels share: names, the loops over a thread's elements, outputs, and memory of cooperative blocks."""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import COMPUTE, E
from hipwright.engine.ir.index import Var, ix, product
from hipwright.engine.templates.base import Body
from hipwright.engine.templates.scan.layout import ScanLayout
from hipwright.engine.templates.sweep import Sweep

OPERATORS = {"sum": ("Sum", 0), "prod": ("Product", 1)}
SUM_DTYPES = {"float": "float32", "double": "float64", "int": "int32", "long": "int64"}

Read = Callable[[E, str], str]
"""How a load is printed."""


class ScanScope:
    """One scan kernel; `emit` receives the statements. outer: the product of the dimensions that are not scanned."""

    def __init__(self, body: Body, layout: ScanLayout) -> None:
        self.body, self.layout, self.emit, self.group = body, layout, body.emit, body.group
        self.member = next(m for m in body.group.members if m.item.kind == "scan")
        self.ctype = COMPUTE[self.member.item.dtype]
        self.operator, identity = OPERATORS[self.member.item.reduction]
        self.identity = f"{self.ctype}({literal(identity, self.ctype)})"
        self.columns = layout.mapping in ("columns", "tiles")
        self.extent = f"{layout.items} * {layout.vec}"
        self._name_variables()

    def _name_variables(self) -> None:
        group, body = self.group, self.body
        (d,) = group.dims
        outer = [k for k in range(len(group.space)) if k != d]
        self.outer = product([group.space[k] for k in outer])
        if self.columns:
            table, self.lines = body.name_variables(outer[:-1], "i", "line") if outer[1:] else ({}, [])
            table[group.variables[outer[-1]]] = ix(Var("col", group.space[outer[-1]]))
            self.row_width = group.space[outer[-1]]
            self.outer = product([group.space[k] for k in outer[:-1]])
        else:
            table, self.lines = body.name_variables(outer, "i", "row") if outer else ({}, [])
        body.rename({**table, group.variables[d]: ix(Var("r", group.space[d]))})
        self.width = group.space[d]
        self.length = self.emit.position(self.width)
        self.sweep = Sweep("r", self.length, self.width, {"r"})

    @property
    def following(self) -> list[E]:
        """The stored values that are computed from the scan or beside it."""
        return [m.value for m in self.body.stored if m is not self.member]

    # ------------------------------------------------------------ elements

    def declare_row_index(self) -> None:
        """Declares the index in the row of element k of a thread's tile."""
        vec = self.layout.vec
        self.emit.line_if_used(f"const {self.body.index_type} r = base + k / {vec} * step + k % {vec};")

    def read_tiles(self, place: str) -> Read:
        """Prints loads that have a tile as its elements from here on; returns how loads were printed before."""
        emit, tiles, plain = self.emit, dict(self.sweep.tiles), self.emit.read
        emit.read = lambda e, p: f"{tiles[k]}.v[{place}]" if (k := (e.attr[0], e.attr[1].key)) in tiles else plain(e, p)
        return plain

    def write_outputs(self, value: str, place: str) -> None:
        """Writes one element of every stored value into its tile or to memory. value: of the scan; place: in tiles."""
        emit, name = self.emit, self.member.item.name
        self.body.rows[name] = value
        if self.following:
            self.body.rows[name] = emit.fresh(name)
            emit.line(f"const {self.ctype} {self.body.rows[name]} = {value};")
        for member in self.body.stored:
            text = self.body.rows[name] if member is self.member else emit.text(member.value)[0]
            found = self.sweep.stores.get(member.item.name)
            if found:
                emit.line(f"{found[0]}.v[{place}] = {self.body.in_tile(member, text)};")
            else:
                emit.line(self.body.store(member, text, emit.position(member.position)))

    # ------------------------------------------------------------ columns

    def open_column_elements(self, start: str) -> None:
        """Opens the loops over a thread's columns and over their rows from `start` on."""
        emit, kind, layout = self.emit, self.body.index_type, self.layout
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {layout.vec}; ++v)")
        emit.line("if (v >= width) continue;")
        emit.line(f"const {kind} col = column + v;")
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {layout.items}; ++k)")
        emit.line("if (k >= count) continue;")
        emit.line_if_used(f"const {kind} r = {start} + k;")

    def declare_column(self) -> None:
        """Declares the line and first column of the thread's vector, and how many of its columns there are."""
        emit, kind, vec, width = self.emit, self.body.index_type, self.layout.vec, self.emit.position(self.row_width)
        if self.outer.value != 1:
            emit.line(f"const {kind} line = vector / vectors;")
        emit.line(f"const {kind} column = vector % vectors * {vec};")
        emit.line(f"const int width = {width} - column < {vec} ? {width} - column : {vec};")
        for line in self.lines:
            emit.line(line)

    # ------------------------------------------------------------ memory of cooperative blocks

    def shared_memory(self) -> tuple[str, str]:
        """Pointers to the flags and sums that the blocks of the launch share."""
        name = self.body.name
        for scratch, dtype in ((f"{name}_flags", "int32"), (f"{name}_sums", SUM_DTYPES[self.ctype])):
            self.body.need.dtypes[scratch] = dtype
            self.body.pointers[scratch] = self.emit.fresh(scratch)
            self.body.scratch.append(scratch)
        return self.body.pointers[f"{name}_flags"], self.body.pointers[f"{name}_sums"]
