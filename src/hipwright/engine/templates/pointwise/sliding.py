"""Stencils of shifted slices: a thread computes two or four neighbours in each of several rows.

What its outputs read of an input row is a span, loaded once in aligned pairs and kept in registers: the register
blocking of stencil compilers (Zhao et al., SC 2018), as in templates/conv/stencil.py. Where outputs read several
planes, a block covers some of them: what one plane loads the next finds in the first-level cache (blocking as by Rivera
& Tseng, SC 2000). Rows of an odd length or at odd addresses, and the last rows and columns, are processed element by
element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import STORAGE, E, walk
from hipwright.engine.ir.index import Atom, Ix, Var, ix, product, replace
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.templates.access import linear, unconditional_loads
from hipwright.engine.templates.base import Body, EmittedKernel, fused
from hipwright.engine.templates.pointwise.elementwise import relaxed_bounds

PAIR = 2
"""Elements of a load; any even address is aligned."""
STENCIL_WIDTHS = (2, 4)
"""Outputs of a thread side by side. With two, the loads of neighbouring lanes are adjacent; with four they leave gaps,
which pays for half types alone, where each input row is then converted for twice as many outputs.
"""
ROWS = (4, 2)
MAX_SPAN_VALUES = 40
"""Values of spans that a thread keeps in registers."""
MAX_GAP = 8  # elements between taps of one span


@dataclass(frozen=True)
class Span:
    """Neighbouring elements of one row of a buffer: `packs` pairs from offset `first`, an even number, after `rest`."""

    buffer: str
    rest: Ix
    first: int
    packs: int


def stencil_rows(group: Group, side: int = PAIR) -> int:
    """The rows of `side` outputs that a thread should compute; 0 where the group is no stencil along its last
    dimension, reads each of its buffers at one place, or needs more registers.
    """
    if len(group.space) < 2:
        return 0
    values = [m.value for m in group.members]
    loads = list({(e.attr[0], e.attr[1].key): e for e in walk(values) if e.op == "load"}.values())
    along = group.variables[-1].name
    if len(loads) < 4 or len(list(unconditional_loads(values))) < len(loads):
        return 0
    if len({e.attr[0] for e in loads}) == len(loads):  # a batch norm's: neighbours share what no thread reads twice
        return 0
    found = [linear(e.attr[1], along) for e in loads]
    if any(f is None or f[0] != ix(1) for f in found) or any(e.op in ("guard", "loop") for e in walk(values)):
        return 0
    for rows in ROWS:
        accesses = [(e.attr[0], p) for e in loads for p in _in_rows(e.attr[1], group.variables[-2], rows)]
        spans = _spans(accesses, along, side)
        packs = sum(s.packs for s in spans)
        if packs * PAIR <= MAX_SPAN_VALUES:
            return rows if packs <= 1.25 * rows * len(loads) else 0  # a pair costs less than two single loads
    return 0


def reads_several_planes(group: Group, hint: Callable[[Ix], int]) -> bool:
    """Whether an output reads several planes, along the dimension before its rows."""
    if len(group.space) < 3:
        return False
    steps, places = dict[str, int](), dict[str, list[int]]()
    for e in walk([m.value for m in group.members]):
        if e.op == "load" and (found := linear(e.attr[1], group.variables[-3].name)) and found[0] != ix(0):
            steps[e.attr[0]] = hint(found[0])
            places.setdefault(e.attr[0], []).append(hint(replace(found[1], _origin)))
    return any(2 * (max(at) - min(at)) > steps[buffer] > 0 for buffer, at in places.items())


def _origin(a: Atom) -> Ix | None:
    return ix(0) if isinstance(a, Var) else None


def _in_rows(position: Ix, line: Var, rows: int) -> list[Ix]:
    """The position in each of a thread's rows."""
    return [_in_row_at(position, line, ix(line) + j) for j in range(rows)]


def _in_row_at(position: Ix, line: Var, new: Ix) -> Ix:
    return replace(position, lambda a: new if a == line else None)


def _spans(accesses: Sequence[tuple[str, Ix]], along: str, side: int) -> list[Span]:
    """The elements that neighbouring outputs read, in few spans."""
    taps: dict[tuple[str, str], tuple[Ix, set[int]]] = {}
    for buffer, position in accesses:
        found = linear(position, along)
        assert found is not None
        constant = found[1].terms.get((), 0)
        rest = found[1] - constant
        taps.setdefault((buffer, rest.key), (rest, set()))[1].add(constant)
    spans = []
    for (buffer, _), (rest, constants) in taps.items():
        low = high = min(constants)
        for c in [*sorted(constants), None]:
            if c is None or c > high + MAX_GAP:
                first = low // PAIR * PAIR
                spans.append(Span(buffer, rest, first, (high + side - 1 - first) // PAIR + 1))
                low = c if c is not None else low
            high = c if c is not None else high
    return spans


def sliding(body: Body, threads: str, rows: int, side: int, planes: str = "") -> EmittedKernel:
    """The kernel. threads: a knob; rows, side: outputs of a thread; planes: the knob of a block's planes, or ""."""
    return _Sliding(body, threads, rows, side, planes).kernel()


class _Sliding:
    def __init__(self, body: Body, threads: str, rows: int, side: int, planes: str) -> None:
        self.body, self.threads, self.rows, self.side, self.planes = body, threads, rows, side, planes
        self.emit, self.group = body.emit, body.group

    def kernel(self) -> EmittedKernel:
        """The finished kernel."""
        body, emit, group, kind = self.body, self.emit, self.group, self.body.index_type
        emit.taken |= {
            "r",
            "v",
            "j",
            "line",
            "plane",
            "blocks_across",
            "row_tiles",
            "base",
            "tile",
            "row",
            *(f"i{k}" for k in range(8)),
        }
        emit.used.add("Tile")
        body.knobs.add(self.threads)
        last = len(group.space) - 1
        self.line, self.r = Var("line", group.space[-2]), Var("r", group.space[-1])
        named, splits = body.name_variables(range(last - 1), "i", "plane") if last > 1 else ({}, [])
        body.rename({**named, group.variables[-2]: ix(self.line), group.variables[-1]: ix(self.r)})
        self.height, self.width = emit.position(group.space[-2]), emit.position(group.space[-1])
        outer = product(group.space[:-2])
        share = f"({self.threads} {{}} {self.planes})" if self.planes else self.threads  # threads of a row
        span = f"({share.format('/')} * {self.side})"
        emit.line(f"const unsigned blocks_across = (unsigned)(({self.width} + {span} - 1) / {span});")
        emit.line(f"const unsigned row_tiles = (unsigned)(({self.height} + {self.rows - 1}) / {self.rows});")
        emit.line("const unsigned tile = blockIdx.x / blocks_across;")
        emit.line(f"const {kind} line = ({kind})(tile % row_tiles) * {self.rows};")
        column = "threadIdx.x"
        if self.planes:
            body.knobs.add(self.planes)
            column = f"threadIdx.x % {share.format('/')}"
            emit.line(f"const {kind} plane = tile / row_tiles * {self.planes} + threadIdx.x / {share.format('/')};")
            emit.line(f"if (plane >= {emit.position(outer)}) return;")
        elif last > 1:
            emit.line(f"const {kind} plane = tile / row_tiles;")
        for text in splits:
            emit.line(text)
        first = f"({kind})(blockIdx.x % blocks_across) * {share.format('/')}"
        emit.line(f"const {kind} base = ({first} + {column}) * {self.side};")
        self._tile()
        span = f"({share.format('//')} * {self.side})"
        counts = f"cdiv({to_python(group.space[-2])}, {self.rows}) * cdiv({to_python(self.r.size or ix(1))}, {span})"
        count = f"cdiv({to_python(outer)}, {self.planes})" if self.planes else f"({to_python(outer)})"
        grid = f"{count} * {counts}"
        kernel = body.finish(grid, self.threads, fused(group), relaxed_bounds(body, self.threads))
        kernel.used.add("load_span")
        if any(self._half(s.buffer) for s in self.spans):
            kernel.used.add("to_floats")
        return kernel

    def _tile(self) -> None:
        """Writes the outputs: from spans where all of a thread's are within the row and aligned, else one by one."""
        body, emit = self.body, self.emit
        values = [self._in_row(j) for j in range(self.rows)]
        loads = [(e.attr[0], e.attr[1]) for row in values for e in walk(row) if e.op == "load"]
        spans = self.spans = _spans(loads, "r", self.side)
        outs = [
            [self._start(body.need.stores[m.item.name][0], self._position(m.position, j)) for m in body.stored]
            for j in range(self.rows)
        ]
        pointers = [self._pointer(s.buffer, s.rest + s.first) for s in spans]
        tests = [f"line + {self.rows} <= {self.height}", f"base + {self.side} <= {self.width}"]
        tests += self._tests(spans)
        emit.open(f"if ({' && '.join(tests)})")
        names = []
        for s, pointer in zip(spans, pointers, strict=True):
            names.append(emit.fresh(f"{body.pointers[s.buffer]}_span"))
            span = f"load_span<{s.packs}, {PAIR}>({pointer} + base)"
            emit.line(f"const auto {names[-1]} = {f'to_floats({span})' if self._half(s.buffer) else span};")
        plain = emit.read
        emit.read = lambda e, _: self._element(e, spans, names)
        for row, starts in zip(values, outs, strict=True):
            self._row(row, starts)
        emit.read = plain
        emit.otherwise()
        emit.open(f"for (int k = 0; k < {self.rows * self.side}; ++k)")
        emit.line(f"const {body.index_type} r = base + k % {self.side}, row = line + k / {self.side};")
        emit.line(f"if (r >= {self.width} || row >= {self.height}) continue;")
        self._single()
        emit.close()
        emit.close()

    def _tests(self, spans: Sequence[Span]) -> list[str]:
        """The conditions under which spans and rows of outputs are aligned: of buffers, and of offsets, whose parity
        known sizes often tell.
        """
        body = self.body
        starts = [(s.buffer, s.rest + s.first, PAIR) for s in spans]
        for m in body.stored:
            places = [self._position(m.position, j) for j in range(self.rows)]
            starts += [(body.need.stores[m.item.name][0], replace(p, self._at_zero), self.side) for p in places]
        buffers = [f"is_aligned_to<{n}>({body.pointers[b]})" for b, n in dict.fromkeys((b, n) for b, _, n in starts)]
        offsets = dict.fromkeys((self.emit.position(p), n) for _, p, n in starts)
        return [*buffers, *(f"({text}) % {n} == 0" for text, n in offsets if text != "0")]

    def _half(self, buffer: str) -> bool:
        return self.body.need.dtypes[buffer] in ("float16", "bfloat16")

    def _at_zero(self, a: Atom) -> Ix | None:
        return ix(0) if a == self.r else None

    def _in_row(self, j: int) -> list[E]:
        """The stored values in the thread's row j."""
        return self._rewritten(ix(self.line) + j)

    def _rewritten(self, line: Ix) -> list[E]:
        values = [m.value for m in self.body.stored]
        values = self.body.c.arena.rewrite(values, lambda a: line if a == self.line else None, lambda e: None)
        self.body.use_fast_functions(values)
        return values

    def _position(self, position: Ix, j: int) -> Ix:
        return replace(position, lambda a: ix(self.line) + j if a == self.line else None)

    def _pointer(self, buffer: str, position: Ix) -> str:
        text = self.emit.position(position)
        return self.body.pointers[buffer] if text == "0" else f"{self.body.pointers[buffer]} + ({text})"

    def _start(self, buffer: str, position: Ix) -> str:
        """The address of the row in which an output lies."""
        return self._pointer(buffer, replace(position, self._at_zero))

    def _element(self, e: E, spans: Sequence[Span], names: Sequence[str]) -> str:
        """A load as an element of its span."""
        found = linear(e.attr[1], "r")
        assert found is not None
        constant = found[1].terms.get((), 0)
        rest = found[1] - constant
        for s, name in zip(spans, names, strict=True):
            if s.buffer == e.attr[0] and s.rest == rest and 0 <= constant - s.first <= s.packs * PAIR - self.side:
                return f"{name}.v[v + {constant - s.first}]"
        raise AssertionError("every load has a span")

    def _row(self, values: Sequence[E], starts: Sequence[str]) -> None:
        """Writes the outputs of one row."""
        body, emit, side = self.body, self.emit, self.side
        outs = []
        for member, start in zip(body.stored, starts, strict=True):
            buffer, dtype = body.need.stores[member.item.name]
            outs.append((emit.fresh(f"{body.pointers[buffer]}_out"), start))
            emit.line(f"Tile<{STORAGE[dtype]}, {side}> {outs[-1][0]};")
        emit.line("#pragma unroll")
        emit.open(f"for (int v = 0; v < {side}; ++v)")
        emit.count(values)
        for member, value, (name, _) in zip(body.stored, values, outs, strict=True):
            emit.line(f"{name}.v[v] = {self._stored(member, value)};")
        emit.close()
        for name, start in outs:
            emit.line(f"store_vector<{side}>({start} + base, {name}.v);")

    def _single(self) -> None:
        """Writes one element, loaded from memory."""
        body, emit = self.body, self.emit
        row = Var("row", self.line.size)
        values = self._rewritten(ix(row))
        emit.count(values)
        for member, value in zip(body.stored, values, strict=True):
            position = replace(member.position, lambda a: ix(row) if a == self.line else None)
            pointer = body.pointers[body.need.stores[member.item.name][0]]
            emit.line(f"{pointer}[{emit.position(position)}] = {self._stored(member, value)};")

    def _stored(self, member: object, value: E) -> str:
        kept, member.value = member.value, value  # type: ignore[attr-defined]
        try:
            return self.body.stored_value(member)  # type: ignore[arg-type]
        finally:
            member.value = kept  # type: ignore[attr-defined]
