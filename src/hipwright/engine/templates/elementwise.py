"""One thread, a few neighbouring elements: pointwise chains, views, gathers, windows."""

from __future__ import annotations

from hipwright.engine.expr import COMPUTE, STORAGE, E, walk
from hipwright.engine.index import Ix, Var, flatten, ix, product
from hipwright.engine.templates.base import Body, Kernel, fused


def elementwise(body: Body, vector: bool) -> Kernel:
    """The kernel; `vector` reads and writes VEC neighbours at once where they lie side by side."""
    group, emit = body.group, body.emit
    total = product(group.space)
    table, splits = body.name_variables(range(len(group.space)), "i", "i")
    body.rename(table)
    flat = _flat(group.space, table, group.variables)
    emit.aliases[flat.key] = "i"
    emit.taken |= {"i", "base", "n", *(f"i{k}" for k in range(len(group.space)))}
    values = [m.value for m in group.members]
    packed = sorted({e.attr[0] for e in walk(values) if e.op == "load" and e.attr[1] == flat})
    count = emit.position(total)
    body.knobs.add("BLOCK")
    if not vector:
        emit.line(f"const {body.index_type} i = blockIdx.x * ({body.index_type})BLOCK + threadIdx.x;")
        emit.line(f"if (i >= {count}) return;")
        _element(body, splits)
        return body.finish("cdiv({total}, BLOCK)", "BLOCK", fused(group), emit.lines, "BLOCK")
    return _vectorised(body, packed, splits, count, flat)


def _flat(space: list[Ix], table: dict[Var, Ix], variables: list[Var]) -> Ix:
    return flatten(space, [table[v] for v in variables])


def _element(body: Body, splits: list[str]) -> None:
    emit = body.emit
    for text in splits:
        emit.line(text)
    members = body.stored
    emit.count([m.value for m in members])
    for member in members:
        emit.line(body.store(member, emit.text(member.value)[0], "i"))


def _vectorised(body: Body, packed: list[str], splits: list[str], count: str, flat: Ix) -> Kernel:
    emit, group = body.emit, body.group
    body.knobs.add("VEC")
    emit.used.add(("Pack", ""))
    kind = body.index_type
    emit.line(f"const {kind} base = (blockIdx.x * ({kind})BLOCK + threadIdx.x) * VEC;")
    emit.line(f"if (base >= {count}) return;")
    packs: dict[str, str] = {}
    for buffer in packed:
        pointer = body.pointers[buffer]
        packs[buffer] = emit.fresh(f"{pointer}_pack")
        emit.line(f"const auto {packs[buffer]} = load_pack<VEC>({pointer}, base, ({kind}){count});")
    outs = {}
    for member in body.stored:
        buffer, dtype = body.need.stores[member.item.name]
        outs[member.item.name] = emit.fresh(f"{body.pointers[buffer]}_pack")
        emit.line(f"Pack<{STORAGE[dtype]}, VEC> {outs[member.item.name]};")
    emit.open("for (int k = 0; k < VEC; ++k)")
    scalar = any(_uses_index(m.value, flat) for m in body.stored)
    if scalar:
        emit.line(f"const {kind} i = base + k < {count} ? base + k : {count} - 1;")
        for text in splits:
            emit.line(text)
    plain = emit.read

    def read(e: E, position: str) -> str:
        if e.attr[0] in packs and e.attr[1] == flat:
            return f"{packs[e.attr[0]]}.v[k]"
        return plain(e, position)

    emit.read = read
    emit.count([m.value for m in body.stored])
    for member in body.stored:
        buffer, dtype = body.need.stores[member.item.name]
        text = emit.text(member.value)[0]
        value = f"{STORAGE[dtype]}({text})" if dtype in ("float16", "bfloat16") else text
        emit.line(f"{outs[member.item.name]}.v[k] = {value};")
        emit.name(member.value, text) if member.value.op == "row" else None
    emit.close()
    for member in body.stored:
        buffer, _ = body.need.stores[member.item.name]
        emit.line(f"store_pack<VEC>({body.pointers[buffer]}, base, ({kind}){count}, {outs[member.item.name]});")
    return body.finish("cdiv({total}, BLOCK * VEC)", "BLOCK", fused(group), emit.lines, "BLOCK")


def _uses_index(value: E, flat: Ix) -> bool:
    """Does the element need its own index, beyond the packed loads?"""
    from hipwright.engine.expr import indices

    for e in walk([value]):
        if e.op == "load" and e.attr[1] == flat:
            continue
        if any(isinstance(a, Var) for p in indices(e) for a in p.atoms()):
            return True
    return False


__all__ = ["COMPUTE", "elementwise", "ix"]
