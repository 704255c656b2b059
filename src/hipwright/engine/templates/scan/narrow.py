"""Scans along rows of half types and smaller: packs become the scan's numbers on arrival and packs again at the end.

A thread whose packs lie within the row and on their borders tests no element. Were its packs to meet values that were
read singly, as in templates/sweep.py, each would be taken apart by an instruction an element, and kept apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.pointwise.elementwise import NARROW
from hipwright.engine.templates.sweep import ThreadTile, VectorAccess, offset

if TYPE_CHECKING:
    from hipwright.engine.templates.scan.rows import Scan

Access = tuple[str, str, VectorAccess]
"""A buffer, the pointer to its row, and how the row is walked."""


def has_narrow(s: Scan) -> bool:
    """Is anything narrow read or written along the row?"""
    return any(
        s.body.need.dtypes[buffer] in NARROW for buffer, _, _ in [*_reads(s, [s.member.value, *s.behind]), *_writes(s)]
    )


def narrow_values(s: Scan, base: str, step: str, bound: str) -> None:
    """This thread's tile of inputs, the identity past the end."""
    emit, share = s.emit, ThreadTile(f"{s.layout.items}, {s.layout.vec}", base, step, bound)
    values = [s.member.value]

    def made() -> list[str]:
        return [f"value.v[k] = {emit.text(s.member.value)[0]};"]

    emit.line(f"Tile<{s.ctype}, {s.extent}> value;")
    _open(s, share, _reads(s, values))
    plain = _read(s, share, values)
    _elements(s, _behind(s, share), f"value.v[k] = {s.identity};", made)
    emit.read = plain
    emit.otherwise()
    _elements(s, "k >= count", f"value.v[k] = {s.identity};", made)
    emit.close()


def narrow_write(s: Scan, value: str, share: ThreadTile) -> None:
    """Store the scan's tile and what is computed from it."""
    emit, body, writes = s.emit, s.body, _writes(s)
    _open(s, share, [*_reads(s, s.behind), *writes])
    plain = _read(s, share, s.behind)
    for member in body.stored:
        place = s.sweep.access(member.position, False)
        if place is not None and not place.run:
            buffer, dtype = body.need.stores[member.item.name]
            name = emit.fresh(f"{body.pointers[buffer]}_out")
            emit.line(f"Tile<{STORAGE[dtype]}, {s.extent}> {name};")
            s.sweep.stores[member.item.name] = (name, offset(body.pointers[buffer], place.start), place)
    _outputs(s, value, _behind(s, share))
    for name, pointer, place in s.sweep.stores.values():
        function = "store_whole_vectors_reversed" if place.reversed else "store_whole_vectors"
        emit.line(f"{function}<{share.shape}>({pointer}, {share.base}, {share.step}, {share.bound}, {name});")
    s.sweep.stores = {}
    emit.read = plain
    emit.otherwise()
    _outputs(s, value, "k >= count")
    emit.close()


def _reads(s: Scan, values: list[E]) -> list[Access]:
    found = []
    for e in unconditional_loads(values):
        place = s.sweep.access(e.attr[1], False)
        if place is not None and not place.run:
            found.append((e.attr[0], offset(s.body.pointers[e.attr[0]], place.start), place))
    return found


def _writes(s: Scan) -> list[Access]:
    found = []
    for m in s.body.stored:
        place = s.sweep.access(m.position, False)
        if place is not None and not place.run:
            buffer = s.body.need.stores[m.item.name][0]
            found.append((buffer, offset(s.body.pointers[buffer], place.start), place))
    return found


def _open(s: Scan, share: ThreadTile, accesses: list[Access]) -> None:
    """The branch of threads whose packs lie within and on their borders."""
    tests = [f"has_whole_vectors<{share.shape}>({share.base}, {share.step}, {share.bound})"]
    for buffer, pointer, place in accesses:
        first = f"{pointer} - ({s.layout.vec} - 1)" if place.reversed else pointer
        tests.append(f"is_vector_aligned<{STORAGE[s.body.need.dtypes[buffer]]}, {s.layout.vec}>({first})")
    s.emit.used |= {("has_whole_vectors", ""), ("load_whole_vectors_reversed", "")}
    s.emit.open(f"if ({' && '.join(dict.fromkeys(tests))})")


def _read(s: Scan, share: ThreadTile, values: list[E]) -> Any:
    """Ask for the packs; loads that they serve are elements of them from here on. Returns how loads were printed."""
    emit, packs = s.emit, dict[tuple[str, str], str]()
    for e in unconditional_loads(values):
        buffer, position, _ = e.attr
        place = s.sweep.access(position, False)
        if place is not None and not place.run and (buffer, position.key) not in packs:
            name = packs[buffer, position.key] = emit.fresh(f"{s.body.pointers[buffer]}_tile")
            function = "load_whole_vectors_reversed" if place.reversed else "load_whole_vectors"
            pointer = offset(s.body.pointers[buffer], place.start)
            arguments = f"{pointer}, {share.base}, {share.step}, {share.bound}"
            emit.line(f"const auto {name} = {function}<{share.shape}>({arguments});")
    plain = emit.read
    emit.read = lambda e, p: f"{packs[k]}.v[k]" if (k := (e.attr[0], e.attr[1].key)) in packs else plain(e, p)
    return plain


def _behind(s: Scan, share: ThreadTile) -> str:
    """Is the pack of element k behind the row? One test a pack."""
    return f"{share.base} + k / {s.layout.vec} * {share.step} >= {share.bound}"


def _elements(s: Scan, behind: str, before: str, made: Callable[[], list[str]]) -> None:
    """The loop over the thread's elements; those behind the row are not computed."""
    emit = s.emit
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {s.extent}; ++k)")
    if before:
        emit.line(before)
    emit.line(f"if ({behind}) continue;")
    s.place_element()
    for line in made():
        emit.line(line)
    emit.close()


def _outputs(s: Scan, value: str, behind: str) -> None:
    def made() -> list[str]:
        s.outputs(value, "k")
        return []

    _elements(s, behind, "", made)
