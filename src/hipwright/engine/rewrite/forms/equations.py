"""Equations of `torch.einsum` as products of two and multiplications, in the order that costs least.

PyTorch multiplies the operands from left to right, and copies those whose dimensions are not in the order of its
batched product, by kernels of its own, and what follows copies the result. Here a step that sums nothing is no product
but an elementwise multiplication, which the kernels around it take in; and permutations are views or part of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from hipwright.capture.graph import Graph, Node, Size
from hipwright.engine.ir.einsum import plain_letters
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.rewrite.node_writer import NodeWriter, Rewrite, times

OP = "aten.einsum.default"
MOST_OPERANDS = 5
"""Operands up to which all orders are compared: 180 of 5."""
LEAST_OPERATIONS = 1e9
"""Operations from which on the library's float32 product is written out. A round figure, not measured."""
PRODUCTS_A_VALUE = 50
"""Multiplications of a product in the time of a value's way through memory. A round figure, not measured."""


@dataclass(frozen=True)
class Term:
    """A value of the graph, and the letters of its dimensions."""

    argument: Any
    letters: str


@dataclass(frozen=True)
class Equation:
    """An einsum without diagonals and without an ellipsis, and the size of each letter."""

    terms: tuple[Term, ...]
    out: str
    sizes: Mapping[str, Size]
    dtype: str

    def shape(self, letters: str) -> list[Size]:
        """The sizes of letters."""
        return [self.sizes[letter] for letter in letters]


def equations(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with equations written out where that is chosen, what could be chosen).

    The choice is `equation:<einsum>`. By default those of three operands or more are written out, and those of two that
    sum nothing, and large ones whose operands or result PyTorch's product would have permuted. The engine's own kernels
    take the small ones, and read and write any order.
    """
    if choices.get("library"):
        return graph, {}
    writer = NodeWriter(graph)

    def possible(node: Node) -> Rewrite | None:
        found = _equation(writer, node)
        if found is None:
            return None
        usual = len(found.terms) != 2 or (_permutes(found) and _is_large(writer, found))
        return usual, partial(_write, writer, node, found)

    return writer.rewritten("equation", possible, choices)


def _equation(writer: NodeWriter, node: Node) -> Equation | None:
    """The equation of a node; None where a letter is twice in a term, or a size is broadcast.

    Two sizes of a letter that are spelled in two ways are the same, as PyTorch wants them, but where one of them is 1.
    """
    if node.op != OP or node.kwargs or node.outs[0] is None:
        return None
    text, operands = node.args[:2]
    known = [writer.meta(operand) for operand in operands]
    metas = [meta for meta in known if meta is not None]
    dtype = node.outs[0].dtype
    if len(metas) != len(operands) or {meta.dtype for meta in metas} != {dtype} or dtype not in HALVES | {"float32"}:
        return None
    found = plain_letters(text, [len(meta.shape) for meta in metas])
    if found is None or not 2 <= len(operands) <= MOST_OPERANDS:
        return None
    letters, out = found
    sizes = dict[str, Size]()
    for term, meta in zip(letters, metas, strict=True):
        for letter, size in zip(term, meta.shape, strict=True):
            known_size = sizes.setdefault(letter, size)
            if known_size != size and (writer.hints([known_size]) != writer.hints([size]) or 1 in (known_size, size)):
                return None
    terms = tuple(Term(operand, term) for operand, term in zip(operands, letters, strict=True))
    return Equation(terms, out, sizes, dtype)


# ---------------------------------------------------------------- which form


def _groups(first: str, second: str, out: str) -> tuple[str, str, str, str]:
    """The letters of a step: of the batch, of the rows, of the columns, and those that are summed."""
    batch = "".join(x for x in out if x in first and x in second)
    rows = "".join(x for x in out if x not in second)
    columns = "".join(x for x in out if x not in first)
    return batch, rows, columns, "".join(x for x in first if x in second and x not in out)


def _within(a: str, b: str, made: str) -> str:
    """The letters that a matrix b puts in the place of those that are summed within a; "" where that is not all."""
    _, rows, columns, summed = _groups(a, b, made)
    before, _, after = a.partition(summed)
    fits = before and after and columns and set(b) == set(columns + summed) and made == before + columns + after
    return columns if fits and rows == before + after else ""


def _permutes(equation: Equation) -> bool:
    """Whether the product of two is none, or one of permuted operands, or with a permuted result."""
    (a, b), out = (term.letters for term in equation.terms), equation.out
    batch, rows, columns, summed = _groups(a, b, out)
    if not summed:
        return True
    if set(a) - set(b) - set(out) or set(b) - set(a) - set(out):
        return True
    plain = (
        {batch + x + y for x, y in ((rows, summed), (summed, rows))},
        {batch + columns + summed, batch + summed + columns},
    )
    return a not in plain[0] or b not in plain[1] or out not in (batch + rows + columns, batch + columns + rows)


def _is_large(writer: NodeWriter, equation: Equation) -> bool:
    """Whether a product of two is the library's by default; True where it is none."""
    (a, b), out = (term.letters for term in equation.terms), equation.out
    every = "".join(dict.fromkeys(a + b))
    small = 2.0 * writer.hints(equation.shape(every)) < LEAST_OPERATIONS
    return not small or equation.dtype in HALVES or set(every) == set(out)


def _order(writer: NodeWriter, equation: Equation) -> list[tuple[int, int]]:
    """The pairs of places to multiply, one after the other; a result takes the last place."""

    def volume(letters: str) -> int:
        return writer.hints(equation.shape(letters))

    def best(terms: tuple[str, ...]) -> tuple[float, list[tuple[int, int]]]:
        if len(terms) == 1:
            return 0.0, []
        found: tuple[float, list[tuple[int, int]]] | None = None
        for i, j in combinations(range(len(terms)), 2):
            rest = tuple(term for place, term in enumerate(terms) if place not in (i, j))
            made = _kept(terms[i] + terms[j], (*rest, equation.out))
            cost = float(volume(terms[i]) + volume(terms[j]) + volume(made))
            every = "".join(dict.fromkeys(terms[i] + terms[j]))
            if len(every) > len(made):
                cost += volume(every) / PRODUCTS_A_VALUE
            later, pairs = best((*rest, made))
            if found is None or cost + later < found[0]:
                found = cost + later, [(i, j), *pairs]
        assert found is not None
        return found

    return best(tuple(term.letters for term in equation.terms))[1]


def _kept(letters: str, others: Sequence[str]) -> str:
    """The letters that one of the others reads, in the order of the result (the last of the others), then the rest."""
    here = [x for x in dict.fromkeys(letters) if any(x in other for other in others)]
    return "".join([x for x in others[-1] if x in here] + [x for x in here if x not in others[-1]])


# ---------------------------------------------------------------- writing


def _write(writer: NodeWriter, node: Node, equation: Equation) -> None:
    """The nodes of an equation, two operands at a time."""
    steps = _Steps(writer, node, equation)
    terms, order = list(equation.terms), _order(writer, equation)
    for number, (i, j) in enumerate(order):
        pair = terms[i], terms[j]
        terms = [term for place, term in enumerate(terms) if place not in (i, j)]
        others = [*(term.letters for term in terms), equation.out]
        made = _kept("".join(term.letters for term in pair), others)
        if number + 1 < len(order) and len(terms) in order[number + 1]:
            partner = next(terms[k] for k in order[number + 1] if k != len(terms))
            made = _for_product(made, partner.letters, [x for x in others if x is not partner.letters])
        terms.append(steps.step(*pair, others, made, last=not terms))


def _for_product(made: str, partner: str, others: Sequence[str]) -> str:
    """A result's letters in the order of the product with its partner, in which the others read what is left."""
    batch, rows, _, summed = _groups(made, partner, _kept(made + partner, others))
    return batch + rows + summed if len(batch + rows + summed) == len(made) else made


@dataclass(frozen=True)
class _Steps:
    """Writes the steps of one equation in the place of its node."""

    writer: NodeWriter
    node: Node
    equation: Equation

    def step(self, a: Term, b: Term, others: Sequence[str], made: str, *, last: bool) -> Term:
        """Multiplies two terms, and sums what none of the others reads.

        made: the result's letters, which is the node where it is the last, and else may have them in another order.
        """
        a = self._alone_summed(a, [b.letters, *others])
        b = self._alone_summed(b, [a.letters, *others])
        batch, rows, columns, summed = _groups(a.letters, b.letters, made)
        if not summed:
            value = self._op("aten.mul.Tensor", [self._spread(a, made), self._spread(b, made)], made, last=last)
            return Term(value, made)
        for large, matrix in ((a, b), (b, a)) if last else ():
            within = _within(large.letters, matrix.letters, made)
            if within:
                operands = [self._matrices(matrix, ("", within, summed)), large.argument]
                return Term(self._op("aten.matmul.default", operands, made, last=True), made)
        if made[-1:] in rows and columns:  # the last dimension of the result is the product's
            a, b, rows, columns = b, a, columns, rows
        operands = [self._matrices(a, (batch, rows, summed)), self._matrices(b, (batch, summed, columns))]
        sizes = [self._size(group) for group in ([batch] if batch else []) + [rows, columns]]
        kind = "aten.bmm.default" if batch else "aten.mm.default"
        value = self.writer.add(self.node, kind, operands, sizes, dtype=self.equation.dtype)
        flat = batch + rows + columns
        as_it_is, shape = not last or flat == made, self.equation.shape(flat)
        value = self.writer.view(self.node, value, shape, dtype=self.equation.dtype, last=last and as_it_is)
        return Term(value, flat) if as_it_is else Term(self._permuted(Term(value, flat), made, last=True), made)

    def _op(self, op: str, args: Sequence[Any], letters: str, *, last: bool = False) -> Any:
        shape = self.equation.shape(letters)
        return self.writer.add(self.node, op, args, shape, dtype=self.equation.dtype, last=last)

    def _size(self, letters: str) -> Size:
        return times(*self.equation.shape(letters))

    def _alone_summed(self, term: Term, others: Sequence[str]) -> Term:
        """A term without the letters that it alone has."""
        alone = [k for k, x in enumerate(term.letters) if not any(x in other for other in others)]
        if not alone:
            return term
        kept = "".join(x for k, x in enumerate(term.letters) if k not in alone)
        return Term(self._op("aten.sum.dim_IntList", [term.argument, alone], kept), kept)

    def _permuted(self, term: Term, letters: str, *, last: bool = False) -> Any:
        """A term's value with its dimensions in the order of these letters."""
        if term.letters == letters and not last:
            return term.argument
        order = [term.letters.index(x) for x in letters]
        return self._op("aten.permute.default", [term.argument, order], letters, last=last)

    def _spread(self, term: Term, letters: str) -> Any:
        """A term that broadcasts to the letters: its own dimensions in their order, and ones."""
        own = "".join(x for x in letters if x in term.letters)
        value = self._permuted(term, own)
        shape = [self.equation.sizes[x] if x in own else 1 for x in letters]
        missing = len(letters) != len(own)
        return self.writer.view(self.node, value, shape, dtype=self.equation.dtype) if missing else value

    def _matrices(self, term: Term, groups: tuple[str, str, str]) -> Any:
        """A term as [batch, x, y] of groups of letters; [x, y] without a batch. A turned matrix is a view of it."""
        batch, x, y = groups
        turned = x and y and term.letters == batch + y + x
        used = [*([batch] if batch else []), *((y, x) if turned else (x, y))]
        value = term.argument if turned else self._permuted(term, "".join(groups))
        sizes = [self._size(group) for group in used]
        if any(len(group) != 1 for group in used):
            value = self.writer.view(self.node, value, sizes, dtype=self.equation.dtype)
        if turned:
            sizes = [*sizes[:-2], sizes[-1], sizes[-2]]
            value = self.writer.add(self.node, "aten.transpose.int", [value, -2, -1], sizes, dtype=self.equation.dtype)
        return value


__all__ = ["equations"]
