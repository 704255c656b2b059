"""Products whose matrix is picked for each row: out[b, n] = sum_k x[b, k] w[index[b], n, k], as a router sends tokens.

A module that gathers its experts' weights and multiplies row by row (`w[index] @ x[..., None]`) reads a matrix for
every row. Here the rows are ordered by the matrix that they use, and each matrix is read once for a tile of rows: the
product of groups of grouped.py, whose rows are read from and stored to where they lie. One block orders the rows, by
counting; a row's sums do not depend on the tile that it is in, so results do not vary. (Grouped products of experts
without copies of tokens: Tan et al., "Scattered Mixture-of-Experts", 2024.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import ONE, ZERO, Atom, Ind, Ix, Var, divide, ix, replace
from hipwright.engine.lower.values import Index, Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.gemm import gemv_plan
from hipwright.engine.templates.gemm.contraction import MatrixProduct, product_of
from hipwright.engine.templates.gemm.cost import MARGIN, ProductCost
from hipwright.engine.templates.gemm.grouped import GroupedGemm, GroupedGemmSpec
from hipwright.engine.templates.gemm.operand import ProductOperand
from hipwright.engine.templates.gemm.tiling import LAUNCH, ProductShape, Tiling, default_depth, default_tile, seconds
from hipwright.engine.templates.offers import STORE_ABOVE, KernelCall, Offer, Output

ROUTED = "routed"
"""The choice, true or false, whether it may be a default (true): where it is estimated below a matrix for each row."""
ROWS_OF_A_MATRIX = 4
"""Rows of each matrix, on average at capture, from which it may be: the weights are read so many times less."""
NEVER = 1 << 30
ORDER_BLOCK = 1024


@dataclass(eq=False)
class RoutedSpec(GroupedGemmSpec):
    """transposed: the output's space is [rows, columns, 1], else [rows, 1, columns]."""

    transposed: bool


def routed_product(call: KernelCall) -> Offer | None:
    """The offer "routed": one operand's batch is an index from memory, and the other has one vector for each."""
    p = product_of(call)
    if p is None or ZERO in p.space:
        return None
    for matrix, rows, transposed in ((p.a, p.b, True), (p.b, p.a, False)):
        found = _picked(matrix) if rows.shape[1] == ONE else None
        if found is None:
            continue
        groups, batch, columns = found[1], p.space[0], matrix.shape[1]
        space = [groups, divide(batch + (groups - 1), groups), columns]
        data = RoutedSpec(space, p.k, p.dtype, groups, batch, transposed)
        enough = call.c.hint(batch) >= ROWS_OF_A_MATRIX * call.c.hint(groups)
        return Offer(
            "routed",
            write_routed,
            [rows, matrix],
            [Output(p.space, shape=list(p.shape))],
            bool(call.choices.get(ROUTED, True)) and enough and _beats_rows(call, p, data),
            p.finish,
            store_above=(STORE_ABOVE, NEVER),
            data=data,
        )
    return None


def _beats_rows(call: KernelCall, p: MatrixProduct, spec: RoutedSpec) -> bool:
    """Whether the order and the tiles are estimated faster than a matrix for each row, by `gemv` or the library."""
    costs, rows = ProductCost(call, p), gemv_plan.plan(call.c, p.a, p.b, p.space, p.k)
    other = min(MARGIN * costs.library(), costs.gemv(rows) if rows else inf)
    return 2 * LAUNCH + _tiles_seconds(call, spec) < other


def _tiles_seconds(call: KernelCall, p: RoutedSpec) -> float:
    """The estimated time of all tiles, of groups of equal size, by threads that each sum over all of k.

    Few groups and columns leave most of a device idle over a long k: 16 tiles of 32 x 32 x 4096 took an H200 228 us
    (177 by the estimate), 256 of 32 x 64 x 1024 90 us (91), 256 of 32 x 128 x 256 44 us (37).
    """
    batch, m, n = call.hints(p.space)
    tiling = Tiling(*default_tile(batch, m, n), default_depth(batch, m, n, p.dtype), slices=False)
    return seconds(ProductShape(batch, m, n, call.c.hint(p.k), p.dtype), tiling)


def _picked(matrix: Tensor) -> tuple[Ind, Ix] | None:
    """(the place that is read from memory, of how many) where the batch is in nothing else of a matrix's elements."""
    named = matrix.at([ix(Var(name, size)) for name, size in zip(("picked", "n", "k"), matrix.shape, strict=True)])
    positions = list(_positions(named))
    places = {a for position in positions for a in position.atoms() if isinstance(a, Ind)}
    if len(places) != 1 or any(_names(_without_places(position), "picked") for position in positions):
        return None
    (place,) = places
    value: E = place.value
    if value.op != "fn" or value.attr != "wrap_index" or value.args[1].op != "index":
        return None
    return place, ix(value.args[1].attr)


def _positions(element: E) -> Iterator[Ix]:
    """The positions of an element, but those by which places are read."""
    stack, done = [element], set[int]()
    while stack:
        e = stack.pop()
        if e.id in done:
            continue
        done.add(e.id)
        yield from indices(e)
        if e.op not in ("load", "index"):  # what these read are places
            stack += e.args


def _without_places(position: Ix) -> Ix:
    return replace(position, lambda a: ZERO if isinstance(a, Ind) else None)


def _names(position: Ix, name: str) -> bool:
    return any(isinstance(a, Var) and a.name == name for a in position.atoms())


def write_routed(body: CallBody) -> list[EmittedKernel]:
    """The kernel that orders the rows, and the product."""
    spec: RoutedSpec = body.data
    _, matrix = body.operands
    assert matrix is not None
    found = _picked(matrix)
    assert found is not None
    ends = body.temporary("ends", [spec.group_count], "int32", zero=True)
    begins = body.temporary("begins", [spec.group_count], "int32")
    order = body.temporary("order", [spec.rows], "int32")
    return [_order_kernel(body, (ends, begins, order)), _Routed(body, ends, order).kernel()]


def _order_kernel(body: CallBody, made: tuple[str, str, str]) -> EmittedKernel:
    """One block: counts the rows of each matrix, adds the counts up, and writes which rows each has."""
    spec: RoutedSpec = body.data
    _, matrix = body.operands
    assert matrix is not None
    k = body.kernel("order", "i at total rows_here chosen g")
    k.written |= set(made)
    ends, begins, order = (k.pointer(buffer) for buffer in made)
    row = Var("i", spec.rows)
    named = matrix.at([ix(row), ZERO, ZERO])
    (place,) = {a for e in walk([named]) if e.op == "load" for a in e.attr[1].atoms() if isinstance(a, Ind)}
    rows, groups = k.size(spec.rows), k.size(spec.group_count)

    def each_row() -> None:
        k.open(f"for (int i = threadIdx.x; i < {rows}; i += {ORDER_BLOCK})")
        k.line(f"const int chosen = (int)({k.emit.position(ix(place))});")

    each_row()
    k.line(f"atomicAdd({ends} + chosen, 1);")
    k.close()
    k.line("__syncthreads();")
    k.open("if (threadIdx.x == 0)")
    k.line("int total = 0;")
    k.open(f"for (int g = 0; g < {groups}; ++g)")
    k.line(f"const int rows_here = {ends}[g];")
    k.line(f"{begins}[g] = total;")
    k.line("total += rows_here;")
    k.line(f"{ends}[g] = total;")
    k.close()
    k.close()
    k.line("__syncthreads();")
    each_row()
    k.line(f"{order}[atomicAdd({begins} + chosen, 1)] = i;")
    k.close()
    return k.finish("1", str(ORDER_BLOCK), str(ORDER_BLOCK), "which rows each matrix has")


class _Routed(GroupedGemm):
    """The product of groups, whose rows are `order[row]`."""

    names = f"{GroupedGemm.names} pair"

    def __init__(self, body: CallBody, ends: str, order: str) -> None:
        super().__init__(body)
        c, self.order = body.c, order
        self.offsets = c.stored(ends, "int32", [self.p.group_count])
        rows, matrix = self.tensors
        assert isinstance(self.p, RoutedSpec)
        self.transposed = self.p.transposed

        def ordered(index: Index) -> E:
            return rows.at([ix(Ind(c.arena.load(order, index[1], "int32"))), ZERO, index[2]])

        def of_group(index: Index) -> E:
            element = matrix.at([ZERO, index[1], index[2]])

            def at_group(e: E) -> E | None:
                position: Ix = e.attr[1]
                place: list[Atom] = [a for a in position.atoms() if isinstance(a, Ind)]
                moved = replace(position, lambda a: index[0] if a in place else None)
                return c.arena.load(e.attr[0], moved, e.attr[2]) if place else None

            (made,) = c.arena.rewrite([element], lambda a: None, at_group)
            return made

        self.x = c.tensor(rows.dtype, [ONE, self.p.rows, self.p.k], ordered)
        self.w = c.tensor(matrix.dtype, [self.p.group_count, matrix.shape[1], self.p.k], of_group)

    def tile_operands(self) -> list[ProductOperand]:
        """Rows in their order, and the columns of the matrix of this group."""
        return [
            ProductOperand("a", self.x, "row", self.m, self.bm),
            ProductOperand("b", self.w, "col", self.n, self.bn),
        ]

    def _place(self, col: str) -> list[Ix | str | int]:
        self.k.line(f"const {self.k.kind} pair = {self.k.pointer(self.order)}[row];")
        return ["pair", col, 0] if self.transposed else ["pair", 0, col]

    def store_element(self, value: str, col: str) -> None:
        """Passes the sum of `row` and a column to the epilogue, at the row's own place."""
        self.k.epilogue(value, self._place(col))

    def store_vector(self, value: str, width: str) -> None:
        """The same for `width` columns from `col` on."""
        self.k.epilogue_vector(value, self._place("col"), "col", width)


__all__ = ["routed_product"]
