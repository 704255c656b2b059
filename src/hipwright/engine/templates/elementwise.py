"""One thread, a few neighbouring elements: pointwise chains, views, gathers, windows.

`vector` takes PACKS packs of VEC neighbours, all asked for before the first is used; where some operand is broadcast
along the rows, `rows` gives each row of the innermost dimension to a block or to lanes (templates/rows.py), so that no
element divides its index and the operand is read in packs too.
"""

from __future__ import annotations

from collections.abc import Callable

from hipwright.engine.expr import STORAGE, E, indices, walk
from hipwright.engine.index import Ix, Var, flatten, ix, product
from hipwright.engine.templates.base import Body, Kernel, fused
from hipwright.engine.templates.sweep import linear


def elementwise(body: Body, vec: str = "", items: str = "", threads: str = "BLOCK") -> Kernel:
    """The kernel; with `vec` and `items` (knobs), packs of neighbours where they lie side by side."""
    group, emit = body.group, body.emit
    total = product(group.space)
    table, splits = body.name_variables(range(len(group.space)), "i", "i")
    body.rename(table)
    flat = flatten(group.space, [table[v] for v in group.variables])
    emit.aliases[flat.key] = "i"
    emit.taken |= {"i", "base", "n", "k", "count", *(f"i{k}" for k in range(len(group.space)))}
    count = emit.position(total)
    body.knobs |= {threads} | ({vec, items} if vec else set())
    if vec:
        return _vectorised(body, (vec, items, threads), splits, count, flat)
    emit.line(f"const {body.index_type} i = blockIdx.x * ({body.index_type}){threads} + threadIdx.x;")
    emit.line(f"if (i >= {count}) return;")
    for text in splits:
        emit.line(text)
    emit.count([m.value for m in body.stored])
    for member in body.stored:
        emit.line(body.store(member, emit.text(member.value)[0], "i"))
    return body.finish(f"cdiv({{total}}, {threads})", threads, fused(group), emit.lines, threads)


def _vectorised(body: Body, knobs: tuple[str, str, str], splits: list[str], count: str, flat: Ix) -> Kernel:
    emit, group, kind = body.emit, body.group, body.index_type
    vec, items, threads = knobs
    step, bound = body.as_index(f"{threads} * {vec}"), body.as_index(count)
    emit.used |= {("load_tile", ""), ("store_tile", ""), ("Tile", "")}
    emit.line(f"const {kind} base = (blockIdx.x * ({kind})({threads} * {items}) + threadIdx.x) * {vec};")
    emit.line(f"if (base >= {count}) return;")
    values = [m.value for m in body.stored]
    tiles: dict[str, str] = {}
    for buffer in sorted({e.attr[0] for e in walk(values) if e.op == "load" and e.attr[1] == flat}):
        tiles[buffer] = emit.fresh(f"{body.pointers[buffer]}_tile")
        arguments = f"{body.pointers[buffer]}, base, {step}, {bound}"
        emit.line(f"const auto {tiles[buffer]} = load_tile<{items}, {vec}>({arguments});")
    outs = {}
    for member in body.stored:
        buffer, dtype = body.need.stores[member.item.name]
        outs[member.item.name] = emit.fresh(f"{body.pointers[buffer]}_out")
        emit.line(f"Tile<{STORAGE[dtype]}, {items} * {vec}> {outs[member.item.name]};")
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {items} * {vec}; ++k)")
    if any(_own_index(m.value, flat) for m in body.stored):
        emit.line(f"const {kind} i = base + k / {vec} * ({threads} * {vec}) + k % {vec};")
        emit.line(f"if (i >= {count}) continue;")
        for text in splits:
            emit.line(text)
    emit.read = _reader(emit.read, tiles, flat)
    emit.count(values)
    for member in body.stored:
        text = body.as_stored(member, emit.text(member.value)[0])
        emit.line(f"{outs[member.item.name]}.v[k] = {text};")
    emit.close()
    for member in body.stored:
        buffer, _ = body.need.stores[member.item.name]
        arguments = f"{body.pointers[buffer]}, base, {step}, {bound}, {outs[member.item.name]}"
        emit.line(f"store_tile<{items}, {vec}>({arguments});")
    grid = f"cdiv({{total}}, {threads} * {vec} * {items})"
    return body.finish(grid, threads, fused(group), emit.lines, threads)


def _reader(plain: Callable[[E, str], str], tiles: dict[str, str], flat: Ix) -> Callable[[E, str], str]:
    def read(e: E, position: str) -> str:
        if e.attr[0] in tiles and e.attr[1] == flat:
            return f"{tiles[e.attr[0]]}.v[k]"
        return plain(e, position)

    return read


def _own_index(value: E, flat: Ix) -> bool:
    """Does the element need its own index, beyond the packed loads?"""
    for e in walk([value]):
        if e.op == "load" and e.attr[1] == flat:
            continue
        if any(isinstance(a, Var) for p in indices(e) for a in p.atoms()):
            return True
    return False


def broadcasts(body: Body) -> bool:
    """Is something read once a row, or along the rows, beside what is read element by element?"""
    group = body.group
    if len(group.space) < 2:
        return False
    flat = flatten(group.space, [ix(v) for v in group.variables])
    positions = [e.attr[1] for e in walk([m.value for m in body.stored]) if e.op == "load"]
    found = [linear(p, group.variables[-1].name) for p in positions if p != flat]
    return any(f is not None and f[0] in (ix(0), ix(1)) for f in found)
