"""Transposes: a tile goes through LDS, so that memory is read along one dimension and written along another.

For pointwise kernels whose result runs along `b` (its last dimension) while some operand runs along another, `a`.
A tile is square, or long along one dimension where the other is too short to fill a square.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import STORAGE, E
from hipwright.engine.ir.index import Ind, Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.access import linear, unconditional_loads
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise import transpose_vectors
from hipwright.engine.templates.pointwise.elementwise import relaxed_bounds

Sides = tuple[str, str]
MAX_STAGED = 3
"""Operands staged in LDS at once."""
NARROW_SIDES, SQUARE_WASTE = (32, 16), 1.15
"""Short sides of tiles that are not square, and the elements of square tiles for each one of other tiles up to which
tiles are square. Of 64 x 32 x 112 x 168 halves a square leaves half of its threads idle, of 16 channels three quarters:
torch's kernels took an H200 39.0 and 19.4 us, square tiles 41.9 and 35.5.
"""
LONG = "side"
NAMES = (LONG, "slot", "ta", "tb", "ta0", "tb0", "tx", "ty", "near", "tiles_a", "tiles_b", "tile", "rest", "line", "k")
"""The kernel's own names: `ta` runs along `a`."""


def transposed_loads(group: Group, stored: set[str]) -> tuple[int, list[E]] | None:
    """(the dimension `a`, the loads that run along it and not along the last dimension); None if there are none."""
    if len(group.space) < 2:
        return None
    last = group.variables[-1]
    values = [m.value for m in group.members if m.item.name in stored]
    loads = [e for e in unconditional_loads(values) if _plain(e.attr[1])]
    for k in range(len(group.space) - 2, -1, -1):
        found = [e for e in loads if _along(e.attr[1], group.variables[k], last)]
        if found and len({(e.attr[0], e.attr[1].key) for e in found}) <= MAX_STAGED:
            return k, found
    return None


def _plain(position: Ix) -> bool:
    return not any(isinstance(a, Ind) for a in position.atoms())


def _along(position: Ix, a: Var, b: Var) -> bool:
    across, down = linear(position, a.name), linear(position, b.name)
    return across is not None and down is not None and across[0] == ix(1) and down[0] not in (ix(0), ix(1))


def transpose(body: Body, threads: str, size: str) -> EmittedKernel:
    """The kernel. size: the knob of a square tile's side."""
    group, emit, kind = body.group, body.emit, body.index_type
    found = transposed_loads(group, {m.item.name for m in body.stored})
    assert found is not None
    k, _ = found
    last = len(group.space) - 1
    emit.taken |= {*NAMES, *(f"i{n}" for n in range(8))}
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
    narrow = tile_sides(*(body.c.hint(group.space[n]) for n in (k, last)))
    sides, plan_sides = (size, size), [size, size]
    if narrow:
        long = f"{size} * {size} / {max(narrow)}"
        emit.line(f"constexpr int {LONG} = {long};  // the side of the tile that is long")
        sides, plan_sides = (
            (str(narrow[0] or LONG), str(narrow[1] or LONG)),
            [str(n or long.replace("/", "//")) for n in narrow],
        )
    a, b = sides
    emit.line(f"const {kind} tiles_a = ({sizes[0]} + {a} - 1) / {a}, tiles_b = ({sizes[1]} + {b} - 1) / {b};")
    emit.line(f"const {kind} tile = blockIdx.x / tiles_b;")
    emit.line(f"const {kind} tb0 = blockIdx.x % tiles_b * {b}, ta0 = tile % tiles_a * {a};")
    if others:
        emit.line(f"const {kind} rest = tile / tiles_a;")
    for line in lines:
        emit.line(line)
    if not narrow:
        emit.line(f"const int tx = threadIdx.x % {size}, ty = threadIdx.x / {size};")
    loads, staged = _declare(body, sides)
    direct = _direct_loads(body, staged)
    vectors = None if direct else _by_vectors(body, threads, sides, [group.space[n] for n in (k, last)], loads, staged)
    if vectors:
        vectors.declare()
        emit.line(f"const bool by_vectors = {vectors.conditions(sizes)};")
        emit.open("if (by_vectors)")
        vectors.stage()
        emit.line("__syncthreads();")
        vectors.write()
        emit.line("return;")
        emit.close()
    _stage(body, threads, sides, sizes, loads, staged)
    prefetched = _prefetch(body, threads, sides, sizes, direct)
    emit.line("__syncthreads();")
    _write(body, threads, sides, sizes, staged, prefetched)
    tiles = [f"cdiv({to_python(group.space[n])}, {side})" for n, side in zip((k, last), plan_sides, strict=True)]
    made = body.finish(
        f"({to_python(rest)}) * {' * '.join(tiles)}", threads, fused(group), relaxed_bounds(body, threads)
    )
    if vectors:
        made.used |= vectors.used
    return made


def tile_sides(a: int, b: int) -> tuple[int, int] | None:
    """The short side of a tile along one of the dimensions, and 0 along the other; None where tiles are square. a, b:
    the sizes of the dimensions at capture.
    """
    options = [(64, 64), *((n, 64 * 64 // n) for n in NARROW_SIDES), *((64 * 64 // n, n) for n in NARROW_SIDES)]
    padded = [-(-a // x) * x * (-(-b // y) * y) for x, y in options]
    if padded[0] <= SQUARE_WASTE * min(padded):
        return None
    x, y = options[padded.index(min(padded))]
    return (x, 0) if x < y else (0, y)


def _declare(body: Body, sides: Sides) -> tuple[list[E], dict[tuple[str, str], str]]:
    """Declares tiles in LDS for the distinct loads along `a`; a column of padding avoids bank conflicts."""
    emit, found, staged = body.emit, dict[tuple[str, str], E](), dict[tuple[str, str], str]()
    for e in unconditional_loads([m.value for m in body.stored]):
        if _plain(e.attr[1]) and _along(e.attr[1], Var("ta"), Var("tb")):
            found.setdefault((e.attr[0], e.attr[1].key), e)
    for key, e in found.items():
        name = staged[key] = emit.fresh(f"{body.pointers[key[0]]}_tile")
        emit.line(f"__shared__ {STORAGE[e.attr[2]]} {name}[{sides[1]}][{sides[0]} + 1];")
    return list(found.values()), staged


def _by_vectors(
    body: Body, threads: str, sides: Sides, space: list[Ix], loads: list[E], staged: dict[tuple[str, str], str]
) -> transpose_vectors.VectorTranspose | None:
    """The transpose by vectors, where it applies."""
    widths = transpose_vectors.widths(body, loads, space)
    if not widths:
        return None
    body.emit.taken |= set(transpose_vectors.NAMES)
    sizes = [body.emit.position(s) for s in space]
    tests = _tests(sizes, sides), _tests(sizes, sides, ("ta", "tb1"))
    return transpose_vectors.VectorTranspose(body, loads, sides, threads, widths, staged, tests, LONG, space[1])


def _stage(
    body: Body, threads: str, sides: Sides, sizes: tuple[str, str], loads: list[E], staged: dict[tuple[str, str], str]
) -> None:
    """Writes the loads along `a` into LDS."""
    emit, kind = body.emit, body.index_type
    _open_lines(body, threads, sides, sides[0], f"const {kind} ta = ta0 + tx, tb = tb0 + line;", sizes)
    for e in loads:
        emit.line(
            f"{staged[e.attr[0], e.attr[1].key]}[line][tx] = {body.pointers[e.attr[0]]}[{emit.position(e.attr[1])}];"
        )
    emit.close()


def _direct_loads(body: Body, staged: dict[tuple[str, str], str]) -> dict[tuple[str, str], E]:
    """Loads that run along `b` as the result does, if they are few."""
    loads = {
        (e.attr[0], e.attr[1].key): e
        for e in unconditional_loads([m.value for m in body.stored])
        if _plain(e.attr[1]) and _along(e.attr[1], Var("tb"), Var("ta"))
    }
    found = {key: e for key, e in loads.items() if key not in staged}
    return found if len(found) <= MAX_STAGED else {}


def _prefetch(
    body: Body, threads: str, sides: Sides, sizes: tuple[str, str], found: dict[tuple[str, str], E]
) -> dict[tuple[str, str], str]:
    """Loads what runs along `b` before the threads wait for the tile; {key: array}."""
    emit, kind = body.emit, body.index_type
    if not found:
        return {}
    names = {key: emit.fresh(f"{body.pointers[key[0]]}_early") for key in found}
    for key, e in found.items():
        emit.line(f"{STORAGE[e.attr[2]]} {names[key]}[{sides[0]} * {sides[1]} / {threads}];")
    _open_lines(body, threads, sides, sides[1], f"const {kind} ta = ta0 + line, tb = tb0 + tx;", sizes)
    for key, e in found.items():
        emit.line(f"{names[key]}[k] = {body.pointers[key[0]]}[{emit.position(e.attr[1])}];")
    emit.close()
    return names


def _tests(sizes: Sequence[str], sides: Sides, names: tuple[str, str] = ("ta", "tb")) -> str:
    """The statement that skips elements outside; never true where tiles fit the sizes."""
    triples = zip(names, map(transpose_vectors.bracketed, sizes), sides, strict=True)
    tests = [f"({n} % {side} && {name} >= {n})" for name, n, side in triples]
    return f"if ({' || '.join(tests)}) continue;"


def _open_lines(body: Body, threads: str, sides: Sides, run: str, place: str, sizes: tuple[str, str]) -> None:
    """Opens the loop over a thread's elements of the tile. run: the side along which threads are neighbours."""
    emit = body.emit
    emit.line("#pragma unroll")
    emit.open(f"for (int k = 0; k < {sides[0]} * {sides[1]} / {threads}; ++k)")
    if LONG in sides:  # a line may be longer than the block
        emit.line(f"constexpr int near = {run} < {threads} ? {run} : {threads};")
        emit.line(f"const int tx = threadIdx.x % near + k % ({run} / near) * near;")
        emit.line(f"const int line = threadIdx.x / near + k / ({run} / near) * ({threads} / near);")
    else:
        emit.line(f"const int line = ty + k * ({threads} / {run});")
    emit.line(place)
    emit.line(_tests(sizes, sides))


def _write(
    body: Body,
    threads: str,
    sides: Sides,
    sizes: tuple[str, str],
    staged: dict[tuple[str, str], str],
    prefetched: dict[tuple[str, str], str],
) -> None:
    """Writes the results along `b`."""
    emit, kind, plain = body.emit, body.index_type, body.emit.read
    _open_lines(body, threads, sides, sides[1], f"const {kind} ta = ta0 + line, tb = tb0 + tx;", sizes)

    def read(e: E, position: str) -> str:
        key = e.attr[0], e.attr[1].key
        if key in staged:
            return f"{staged[key]}[tx][line]"
        return f"{prefetched[key]}[k]" if key in prefetched else plain(e, position)

    emit.read = read
    emit.count([m.value for m in body.stored])
    for member in body.stored:
        pointer, value = body.pointers[body.need.stores[member.item.name][0]], body.stored_value(member)
        emit.line(f"{pointer}[{emit.position(member.position)}] = {value};")
    emit.close()
    emit.read = plain
