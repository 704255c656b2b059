"""Scans along rows of 2-byte types and smaller: whole vectors are converted on arrival and packed again at the end.

A thread whose vectors lie within the row and are aligned tests no element. If values from vectors met values loaded one
by one, as in templates/sweep.py, each would be extracted by an instruction, and kept in a register of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.pointwise.elementwise import NARROW
from hipwright.engine.templates.scan.scope import Read, ScanScope
from hipwright.engine.templates.sweep import ThreadTile, VectorAccess, offset

Access = tuple[str, str, VectorAccess]
"""A buffer, the pointer to its row, and how the row is traversed."""


def has_narrow_rows(s: ScanScope) -> bool:
    """Whether values of a narrow type are loaded or stored along the row."""
    accesses = [*_loads(s, [s.member.value, *s.following]), *_stores(s)]
    return any(s.body.need.dtypes[buffer] in NARROW for buffer, _, _ in accesses)


def load_narrow_tile(s: ScanScope, tile: ThreadTile) -> None:
    """Computes this thread's tile of scan inputs; the identity beyond the row."""
    emit, values = s.emit, [s.member.value]

    def element() -> list[str]:
        return [f"value.v[k] = {emit.text(s.member.value)[0]};"]

    emit.line(f"Tile<{s.ctype}, {s.extent}> value;")
    _open_whole_vectors(s, tile, _loads(s, values))
    plain = _load_vectors(s, tile, values)
    _elements(s, _beyond(s, tile), f"value.v[k] = {s.identity};", element)
    emit.read = plain
    emit.otherwise()
    _elements(s, "k >= count", f"value.v[k] = {s.identity};", element)
    emit.close()


def store_narrow_tile(s: ScanScope, value: str, tile: ThreadTile) -> None:
    """Stores the scan's tile and what is computed from it."""
    emit, body, stores = s.emit, s.body, _stores(s)
    _open_whole_vectors(s, tile, [*_loads(s, s.following), *stores])
    plain = _load_vectors(s, tile, s.following)
    for member in body.stored:
        access = s.sweep.access(member.position, False)
        if access is not None and not access.run:
            buffer, dtype = body.need.stores[member.item.name]
            name = emit.fresh(f"{body.pointers[buffer]}_out")
            emit.line(f"Tile<{STORAGE[dtype]}, {s.extent}> {name};")
            s.sweep.stores[member.item.name] = (name, offset(body.pointers[buffer], access.start), access)
    _outputs(s, value, _beyond(s, tile))
    for name, pointer, access in s.sweep.stores.values():
        function = "store_whole_vectors_reversed" if access.reversed else "store_whole_vectors"
        emit.line(f"{function}<{tile.shape}>({pointer}, {tile.base}, {tile.step}, {tile.bound}, {name});")
    s.sweep.stores = {}
    emit.read = plain
    emit.otherwise()
    _outputs(s, value, "k >= count")
    emit.close()


def _loads(s: ScanScope, values: list[E]) -> list[Access]:
    found = []
    for e in unconditional_loads(values):
        access = s.sweep.access(e.attr[1], False)
        if access is not None and not access.run:
            found.append((e.attr[0], offset(s.body.pointers[e.attr[0]], access.start), access))
    return found


def _stores(s: ScanScope) -> list[Access]:
    found = []
    for m in s.body.stored:
        access = s.sweep.access(m.position, False)
        if access is not None and not access.run:
            buffer = s.body.need.stores[m.item.name][0]
            found.append((buffer, offset(s.body.pointers[buffer], access.start), access))
    return found


def _open_whole_vectors(s: ScanScope, tile: ThreadTile, accesses: list[Access]) -> None:
    """Opens the branch of threads whose vectors lie within the row and are aligned."""
    tests = [f"has_whole_vectors<{tile.shape}>({tile.base}, {tile.step}, {tile.bound})"]
    for buffer, pointer, access in accesses:
        first = f"{pointer} - ({s.layout.vec} - 1)" if access.reversed else pointer
        tests.append(f"is_vector_aligned<{STORAGE[s.body.need.dtypes[buffer]]}, {s.layout.vec}>({first})")
    s.emit.used |= {"has_whole_vectors", "load_whole_vectors_reversed"}
    s.emit.open(f"if ({' && '.join(dict.fromkeys(tests))})")


def _load_vectors(s: ScanScope, tile: ThreadTile, values: list[E]) -> Read:
    """Loads tiles and prints their loads as elements from here on; returns how loads were printed before."""
    emit, tiles = s.emit, dict[tuple[str, str], str]()
    for e in unconditional_loads(values):
        buffer, position, _ = e.attr
        access = s.sweep.access(position, False)
        if access is not None and not access.run and (buffer, position.key) not in tiles:
            name = tiles[buffer, position.key] = emit.fresh(f"{s.body.pointers[buffer]}_tile")
            function = "load_whole_vectors_reversed" if access.reversed else "load_whole_vectors"
            pointer = offset(s.body.pointers[buffer], access.start)
            arguments = f"{pointer}, {tile.base}, {tile.step}, {tile.bound}"
            emit.line(f"const auto {name} = {function}<{tile.shape}>({arguments});")
    plain = emit.read
    emit.read = lambda e, p: f"{tiles[k]}.v[k]" if (k := (e.attr[0], e.attr[1].key)) in tiles else plain(e, p)
    return plain


def _beyond(s: ScanScope, tile: ThreadTile) -> str:
    """Whether the vector of element k lies beyond the row: one test per vector."""
    return f"{tile.base} + k / {s.layout.vec} * {tile.step} >= {tile.bound}"


def _elements(s: ScanScope, beyond: str, first: str, element: Callable[[], list[str]]) -> None:
    """Writes the loop over a thread's elements: `first` for all, then `element` for those within the row."""
    emit = s.emit
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {s.extent}; ++k)")
    if first:
        emit.line(first)
    emit.line(f"if ({beyond}) continue;")
    s.declare_row_index()
    for line in element():
        emit.line(line)
    emit.close()


def _outputs(s: ScanScope, value: str, beyond: str) -> None:
    def element() -> list[str]:
        s.write_outputs(value, "k")
        return []

    _elements(s, beyond, "", element)
