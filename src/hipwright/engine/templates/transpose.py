"""Transposes: a square tile goes through LDS, so that memory is read along one dimension and written along another.

For pointwise kernels whose result runs along `b` (its last dimension) while some operand runs along another, `a`.
"""

from __future__ import annotations

from hipwright.engine.expr import STORAGE, E
from hipwright.engine.index import Ind, Ix, Var, ix, product, to_python
from hipwright.engine.schedule import Group
from hipwright.engine.templates.base import Body, Kernel, fused
from hipwright.engine.templates.sweep import linear, unconditional

MOST = 3
"""Operands staged in LDS at once."""
TURNED = ("ta", "tb", "ta0", "tb0", "tx", "ty", "tiles_a", "tiles_b", "tile", "rest", "line", "k")
"""The kernel's own names: `ta` runs along `a`."""


def turned(group: Group, stored: set[str]) -> tuple[int, list[E]] | None:
    """(the dimension `a`, the loads that run along it and not along the last), or None when there are none."""
    if len(group.space) < 2:
        return None
    last = group.variables[-1]
    values = [m.value for m in group.members if m.item.name in stored]
    loads = [e for e in unconditional(values, set()) if _plain(e.attr[1])]
    for k in range(len(group.space) - 2, -1, -1):
        found = [e for e in loads if _along(e.attr[1], group.variables[k], last)]
        if found and len({(e.attr[0], e.attr[1].key) for e in found}) <= MOST:
            return k, found
    return None


def _plain(position: Ix) -> bool:
    return not any(isinstance(a, Ind) for a in position.atoms())


def _along(position: Ix, a: Var, b: Var) -> bool:
    across, down = linear(position, a.name), linear(position, b.name)
    return across is not None and down is not None and across[0] == ix(1) and down[0] not in (ix(0), ix(1))


def transpose(body: Body, threads: str, size: str) -> Kernel:
    """The kernel; size: the knob of a tile's side."""
    group, emit, kind = body.group, body.emit, body.index_type
    found = turned(group, {m.item.name for m in body.stored})
    assert found is not None
    k, _ = found
    last = len(group.space) - 1
    emit.taken |= {*TURNED, *(f"i{n}" for n in range(8))}
    others = [n for n in range(last) if n != k]
    table, lines = body.name_variables(others, "i", "rest") if others else ({}, [])
    table |= {
        group.variables[k]: ix(Var("ta", group.space[k])),
        group.variables[last]: ix(Var("tb", group.space[last])),
    }
    sizes = emit.position(group.space[k]), emit.position(group.space[last])
    rest = product([group.space[n] for n in others])
    body.rename(table)
    body.knobs |= {threads, size}
    emit.line(
        f"const {kind} tiles_a = ({sizes[0]} + {size} - 1) / {size}, tiles_b = ({sizes[1]} + {size} - 1) / {size};"
    )
    emit.line(f"const {kind} tile = blockIdx.x / tiles_b;")
    emit.line(f"const {kind} tb0 = blockIdx.x % tiles_b * {size}, ta0 = tile % tiles_a * {size};")
    if others:
        emit.line(f"const {kind} rest = tile / tiles_a;")
    for line in lines:
        emit.line(line)
    emit.line(f"const int tx = threadIdx.x % {size}, ty = threadIdx.x / {size};")
    staged = _stage(body, threads, size, sizes)
    _write(body, threads, size, sizes, staged)
    side = [f"cdiv({to_python(group.space[n])}, {size})" for n in (k, last)]
    return body.finish(f"({to_python(rest)}) * {side[0]} * {side[1]}", threads, fused(group), emit.lines, threads)


def _stage(body: Body, threads: str, size: str, sizes: tuple[str, str]) -> dict[tuple[str, str], str]:
    """Read along `a` into LDS; a column of padding keeps the banks apart."""
    emit, kind, staged = body.emit, body.index_type, dict[tuple[str, str], str]()
    a, b = Var("ta"), Var("tb")
    values = [m.value for m in body.stored]
    loads = [e for e in unconditional(values, set()) if _plain(e.attr[1]) and _along(e.attr[1], a, b)]
    for e in loads:
        buffer, position, dtype = e.attr
        if (buffer, position.key) not in staged:
            name = staged[buffer, position.key] = emit.fresh(f"{body.pointers[buffer]}_tile")
            emit.line(f"__shared__ {STORAGE[dtype]} {name}[{size}][{size} + 1];")
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {size} * {size} / {threads}; ++k)")
    emit.line(f"const int line = ty + k * ({threads} / {size});")
    emit.line(f"const {kind} ta = ta0 + tx, tb = tb0 + line;")
    emit.line(f"if (ta >= {sizes[0]} || tb >= {sizes[1]}) continue;")
    done = set()
    for e in loads:
        key = (e.attr[0], e.attr[1].key)
        if key not in done:
            done.add(key)
            emit.line(f"{staged[key]}[line][tx] = {body.pointers[key[0]]}[{emit.position(e.attr[1])}];")
    emit.close()
    emit.line("__syncthreads();")
    return staged


def _write(body: Body, threads: str, size: str, sizes: tuple[str, str], staged: dict[tuple[str, str], str]) -> None:
    """Compute and store along `b`."""
    emit, kind, plain = body.emit, body.index_type, body.emit.read
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {size} * {size} / {threads}; ++k)")
    emit.line(f"const int line = ty + k * ({threads} / {size});")
    emit.line(f"const {kind} ta = ta0 + line, tb = tb0 + tx;")
    emit.line(f"if (ta >= {sizes[0]} || tb >= {sizes[1]}) continue;")

    def read(e: E, position: str) -> str:
        name = staged.get((e.attr[0], e.attr[1].key))
        return f"{name}[tx][line]" if name else plain(e, position)

    emit.read = read
    emit.count([m.value for m in body.stored])
    for member in body.stored:
        emit.line(body.store(member, emit.text(member.value)[0], emit.position(member.position)))
    emit.close()
    emit.read = plain
