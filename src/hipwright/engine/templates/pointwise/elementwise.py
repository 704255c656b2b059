"""Pointwise chains, views, gathers and windows: a thread computes one element, or a few vectors of neighbours.

Mapping `scalar`: one element. `vector`: VECS vectors of VEC elements, all loaded before the first is used. Where an
operand is broadcast along rows, mapping `rows` (rows.py) assigns each row of the innermost dimension to a block or to
lanes, so that no element divides its index and the operand is loaded in vectors too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hipwright.engine.ir.expr import ROUNDING, STORAGE, E, indices, walk
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.templates.access import linear, unconditional_loads
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise.float8_values import SharedDivisions, rounded_in_pairs
from hipwright.engine.templates.pointwise.strided import strided_vectors

NARROW = (*ROUNDING, "int16", "int8", "uint8", "bool")


def elementwise(body: Body, vec: str = "", items: str = "", threads: str = "BLOCK") -> EmittedKernel:
    """The kernel. vec, items: the knobs of the vectorised mapping, or "" for one element per thread."""
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
        emit.line(f"{body.pointers[body.need.stores[member.item.name][0]]}[i] = {body.stored_value(member)};")
    return body.finish(f"cdiv({{total}}, {threads})", threads, fused(group), threads)


def _vectorised(body: Body, knobs: tuple[str, str, str], splits: list[str], count: str, flat: Ix) -> EmittedKernel:
    """The kernel by vectors. splits: statements that split index `i`; flat: the row-major position of an element."""
    emit, group, kind = body.emit, body.group, body.index_type
    vec, items, threads = knobs
    step, bound = body.as_index(f"{threads} * {vec}"), body.as_index(count)
    emit.used |= {"has_whole_vectors", "Tile"}
    emit.line(f"const {kind} base = (blockIdx.x * ({kind})({threads} * {items}) + threadIdx.x) * {vec};")
    values = [m.value for m in body.stored]
    emit.count(values)
    body.use_fast_functions(values)
    read = _read_by_vectors(body, values, flat)
    narrow = alignment_tests(body, [(b, body.pointers[b]) for b in [*read, *_written(body)]], vec)
    last = f"i{len(splits) - 1}" if splits else "i"
    strided = strided_vectors(values, last)
    narrow = list(dict.fromkeys([*narrow, *(vectors.is_aligned(body, vec) for vectors in strided)]))
    divisions = SharedDivisions.of(body, values)
    divisions.load(body)
    emit.open(f"if ({' && '.join([f'has_whole_vectors<{items}, {vec}>(base, {step}, {bound})', *narrow])})")
    tiles: dict[tuple[str, str], str] = {}
    for buffer in read:
        tile = emit.fresh(f"{body.pointers[buffer]}_tile")
        arguments = f"{body.pointers[buffer]}, base, {step}, {bound}"
        emit.line(f"const auto {tile} = load_whole_vectors<{items}, {vec}>({arguments});")
        tiles[buffer, flat.key] = f"{tile}.v[k]"
    for vectors in strided:
        tiles |= vectors.load(body, knobs, last, splits, bound)
    divisions.open(body)
    outs = {}
    for member in body.stored:
        buffer, _ = body.need.stores[member.item.name]
        outs[member.item.name] = emit.fresh(f"{body.pointers[buffer]}_out")
        emit.line(f"Tile<{body.vector_type(member)}, {items} * {vec}> {outs[member.item.name]};")
    index = [f"const {kind} i = base + k / {vec} * ({threads} * {vec}) + k % {vec};", *splits]
    tested = needs_bounds_test(values, tiles.keys() | divisions.places)
    plain = emit.read
    emit.read = _reader(plain, tiles)
    test = f"if (base + k / {vec} * ({threads} * {vec}) >= {bound}) continue;" if tested else ""
    using = {m.item.name for m in body.stored if _needs_index(m.value, tiles)}
    _compute(body, f"{items} * {vec}", test, (using, index), outs)
    for member in body.stored:
        buffer, _ = body.need.stores[member.item.name]
        arguments = f"{body.pointers[buffer]}, base, {step}, {bound}, {outs[member.item.name]}"
        emit.line(f"store_whole_vectors<{items}, {vec}>({arguments});")
    emit.read = plain
    if not divisions.close(body):
        emit.otherwise()
    emit.open(f"for (int k = 0; k < {items} * {vec}; ++k)")
    emit.line(index[0])
    emit.line(f"if (i >= {count}) break;")
    for text in splits:
        emit.line_if_used(text)
    for member in body.stored:
        emit.line(f"{body.pointers[body.need.stores[member.item.name][0]]}[i] = {body.stored_value(member)};")
    emit.close()
    if not divisions.divisions:
        emit.close()
    grid = f"cdiv({{total}}, {threads} * {vec} * {items})"
    return body.finish(grid, threads, fused(group), relaxed_bounds(body, threads))


def _compute(body: Body, count: str, test: str, index: tuple[set[str], list[str]], outs: dict[str, str]) -> None:
    """Writes the loops over a thread's elements into the tiles `outs`. count: the elements; test: what ends the work on
    one, or ""; index: the items that need an element's index, and the statements that compute it.
    """
    emit, rounded = body.emit, rounded_in_pairs(body)
    for members in rounded.passes:
        emit.line("#pragma unroll")
        emit.open(f"for (int k = 0; k < {count}; ++k)")
        if test:
            emit.line(test)
        if any(m.item.name in index[0] for m in members):
            for text in index[1]:
                emit.line(text)
        for member in members:
            emit.line(f"{outs[member.item.name]}.v[k] = {body.vector_value(member)};")
        emit.close()
        rounded.round(body, outs)
    rounded.forget(body)


def _read_by_vectors(body: Body, values: Sequence[E], flat: Ix) -> list[str]:
    """The buffers that are read element by element: what a condition guards, as a part of a concatenation, may have
    fewer elements than the result, and goes by vectors only where it has as many.
    """
    always = {(e.attr[0], e.attr[1].key) for e in unconditional_loads(values)}
    total = product(body.group.space)

    def whole(e: E) -> bool:
        return (e.attr[0], e.attr[1].key) in always or body.need.numels.get(e.attr[0]) == total

    return sorted({e.attr[0] for e in walk(values) if e.op == "load" and e.attr[1] == flat and whole(e)})


def needs_bounds_test(values: Sequence[E], packed: set[tuple[str, str]]) -> bool:
    """Whether elements beyond the end must not be computed: from the zeros in their vectors they may load or divide.

    packed: (buffer, position) of the loads that go by vectors.
    """
    for e in walk(values):
        if e.op == "load" and (e.attr[0], e.attr[1].key) not in packed:
            return True
        if e.ctype in ("int", "long") and (e.op == "fn" or (e.op == "bin" and e.attr in "/%")):
            return True
    return False


def relaxed_bounds(body: Body, threads: str) -> str:
    """Launch bounds of a kernel that issues all its loads at once.

    The second number keeps ptxas from aiming at 32 registers and delaying loads; 1024 threads leave it 64 registers,
    which double precision would exceed.
    """
    buffers = [*body.loads, *(body.need.stores[m.item.name][0] for m in body.stored)]
    return f"{threads}, 1" if any(body.need.dtypes[b] == "float64" for b in buffers) else "1024, 1"


def alignment_tests(body: Body, accesses: Sequence[tuple[str, str]], vec: str) -> list[str]:
    """Tests that vectors of narrow types are aligned. accesses: (buffer, the address of its first vector).

    Loads of wider types test for themselves. If a narrow value came from either of two kinds of loads, each would be
    unpacked.
    """
    tests = []
    for buffer, pointer in accesses:
        dtype = body.need.dtypes[buffer]
        if dtype in NARROW:
            tests.append(f"is_vector_aligned<{STORAGE[dtype]}, {vec}>({pointer})")
    return list(dict.fromkeys(tests))


def _written(body: Body) -> list[str]:
    """The buffers that the kernel stores to."""
    return [body.need.stores[m.item.name][0] for m in body.stored]


def _reader(plain: Callable[[E, str], str], tiles: Mapping[tuple[str, str], str]) -> Callable[[E, str], str]:
    def read(e: E, position: str) -> str:
        return tiles.get((e.attr[0], e.attr[1].key)) or plain(e, position)

    return read


def _needs_index(value: E, tiles: Mapping[tuple[str, str], str]) -> bool:
    """Whether the value uses the element's index other than to load vectors. tiles: loads of these, by (buffer,
    position)."""
    for e in walk([value]):
        if e.op == "load" and (e.attr[0], e.attr[1].key) in tiles:
            continue
        if any(isinstance(a, Var) for p in indices(e) for a in p.atoms()):
            return True
    return False


def has_broadcast(body: Body) -> bool:
    """Whether an operand is read once per row or along rows, beside those that are read element by element."""
    group = body.group
    if len(group.space) < 2:
        return False
    flat = flatten(group.space, [ix(v) for v in group.variables])
    positions = [e.attr[1] for e in walk([m.value for m in body.stored]) if e.op == "load"]
    found = [linear(p, group.variables[-1].name) for p in positions if p != flat]
    return any(f is not None and f[0] in (ix(0), ix(1)) for f in found)
