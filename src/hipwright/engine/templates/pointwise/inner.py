"""Interleaved results, as of a pixel shuffle, and repeated ones, as of nearest upsampling: one thread computes a short
last dimension of known length.

Neighbouring threads take neighbours of the dimension before, along which the operands run: their loads are coalesced,
and each thread stores its elements at once. The index is split once for all of them.
"""

from __future__ import annotations

from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.access import linear
from hipwright.engine.templates.base import Body, EmittedKernel, depends, fused
from hipwright.engine.templates.pointwise.elementwise import relaxed_bounds

LENGTHS = (2, 4, 8, 16)


def is_interleaving(group: Group) -> bool:
    """Whether the last dimension is short and some operand is read along the one before."""
    if len(group.space) < 2 or group.space[-1].value not in LENGTHS:
        return False
    before, last = (v.name for v in group.variables[-2:])
    for e in walk([m.value for m in group.members]):
        if e.op == "load":
            along, across = linear(e.attr[1], before), linear(e.attr[1], last)
            if along and across and along[0] == ix(1) and across[0] not in (ix(0), ix(1)):
                return True
    return False


def is_repeating(group: Group) -> bool:
    """Whether the last dimension is short, nothing changes along it, and some operand is read along the one before."""
    if len(group.space) < 2 or group.space[-1].value not in LENGTHS:
        return False
    (before, last), memo = (v.name for v in group.variables[-2:]), dict[int, bool]()
    values = [m.value for m in group.members]
    if any(depends(value, {last}, memo) for value in values):
        return False
    along = [linear(e.attr[1], before) for e in walk(values) if e.op == "load"]
    return any(found is not None and found[0] == ix(1) for found in along)


def inner(body: Body, threads: str, items: str) -> EmittedKernel:
    """The kernel. items: the knob of the positions of a thread, BLOCK apart."""
    group, emit, kind = body.group, body.emit, body.index_type
    length = group.space[-1].value
    emit.taken |= {"first", "position", "k", "s", "i", *(f"i{n}" for n in range(8))}
    table, splits = body.name_variables(range(len(group.space) - 1), "i", "position")
    table[group.variables[-1]] = ix(Var("s", group.space[-1]))
    body.rename(table)
    count = emit.position(_positions(group))
    body.knobs |= {threads, items}
    emit.used.add("Tile")
    emit.line(f"const {kind} first = blockIdx.x * ({kind})({threads} * {items}) + threadIdx.x;")
    outs = {}
    for member in body.stored:
        buffer, _ = body.need.stores[member.item.name]
        outs[member.item.name] = emit.fresh(f"{body.pointers[buffer]}_out")
        emit.line(f"Tile<{body.vector_type(member)}, {length}> {outs[member.item.name]}[{items}];")
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {items}; ++k)")
    emit.line(f"const {kind} position = first + k * {threads};")
    emit.line(f"if (position >= {count}) continue;")
    for line in splits:
        emit.line(line)
    emit.line("#pragma unroll")
    emit.open(f"for (int s = 0; s < {length}; ++s)")
    emit.count([m.value for m in body.stored])
    for member in body.stored:
        emit.line(f"{outs[member.item.name]}[k].v[s] = {body.vector_value(member)};")
    emit.close()
    emit.close()
    _store(body, outs, (threads, items, count))
    grid = f"cdiv({to_python(_positions(group))}, {threads} * {items})"
    return body.finish(grid, threads, fused(group), relaxed_bounds(body, threads))


def _positions(group: Group) -> Ix:
    """The number of elements of all dimensions but the last."""
    return product(group.space[:-1])


def _store(body: Body, outs: dict[str, str], sizes: tuple[str, str, str]) -> None:
    """Writes the stores of a thread's elements."""
    emit, (threads, items, count) = body.emit, sizes
    length = body.group.space[-1].value
    emit.used.add("has_whole_vectors")
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {items}; ++k)")
    emit.line(f"const {body.index_type} position = first + k * {threads};")
    emit.line(f"if (position >= {count}) continue;")
    for member in body.stored:
        pointer = body.pointers[body.need.stores[member.item.name][0]]
        bound = body.as_index(f"{length}")
        zero, one = body.as_index("0"), body.as_index("1")
        arguments = f"{pointer} + position * {length}, {zero}, {one}, {bound}, {outs[member.item.name]}[k]"
        emit.line(f"store_whole_vectors<1, {length}>({arguments});")
    emit.close()
