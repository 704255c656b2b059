"""Keys that a mask hides from all queries of a block: their scores need no product, so they are not read.

A length, a window or a mask of truth values gives a hidden key one score whatever its product is. Its value is read all
the same: 0 times an infinite or NaN value is NaN in the module.
"""

from __future__ import annotations

from hipwright.engine.ir.expr import E, ExprArena, indices, walk
from hipwright.engine.ir.index import ONE, Ix, Var, ix
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.bands import PRODUCT
from hipwright.engine.templates.attention.problem import AttentionProblem, declare_row
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel

READ, SKIPPED = "read", "skipped"
"""Values of `call:<node>:hidden`. Skipped is the default where what hides a key is the same for all keys but for its
place (a length, a window): testing it takes a few instructions, a key 64 to 512 bytes. Decoding 64 sequences of 32
heads over pages took an H200 81.5 us with keys skipped, 90.7 with all read; a window of 128 46.6 and 62.8.
"""


class HiddenKeys:
    """What hides keys in one call, and whether they are skipped."""

    def __init__(self, body: CallBody, f: AttentionProblem, mask: Tensor | None) -> None:
        self.f = f
        self.seen = _seen(body, f, mask)
        self.skipped = False
        if self.seen is not None or f.causal:
            usual = READ if self._reads_at("n") else SKIPPED
            self.skipped = body.choose("hidden", (READ, SKIPPED), usual) == SKIPPED

    def emit_seen(self, kernel: CallKernel, names: list[str]) -> None:
        """Sets `seen` where a row of the block sees key `key` of the chunk."""
        f, length = self.f, kernel.size(self.f.keys)
        total = kernel.size(f.queries * f.group)
        kernel.line(f"const {kernel.kind} at = first_key + key;")
        kernel.open(f"if (key < CHUNK && at < {length})")
        kernel.line(f"const {kernel.kind} n = at;")
        if f.causal or self._names({"m", names[-1]}):
            kernel.open(f"for (int row = 0; row < R && first_row + row < {total}; ++row)")
            declare_row(kernel, f, names)
            self._emit_test(kernel, names)
            kernel.close()
        else:
            self._emit_test(kernel, names)
        kernel.close()

    def _emit_test(self, kernel: CallKernel, names: list[str]) -> None:
        tests = ["n <= m"] if self.f.causal else []
        if self.seen is not None:
            index = [*names, "m", "n"][len(names) + 2 - self.seen.rank :]
            place = [0 if size == ONE else i for i, size in zip(index, self.seen.shape, strict=True)]
            tests.append(f"({kernel.load(self.seen, place)})")
        kernel.line(f"seen |= {' && '.join(tests)};")

    def _element(self) -> E | None:
        """The element of `seen` over the names of its index."""
        if self.seen is None:
            return None
        names = [*(f"i{k}" for k in range(len(self.f.lead))), "m", "n"][-self.seen.rank :]
        sizes = zip(names, self.seen.shape, strict=True)
        return self.seen.at([ix(0) if size == ONE else ix(Var(name, size)) for name, size in sizes])

    def _names(self, names: set[str]) -> bool:
        """Whether it depends on one of these variables."""
        e = self._element()
        return e is not None and any(_mentions(at, names) for one in walk([e]) for at in indices(one))

    def _reads_at(self, name: str) -> bool:
        """Whether it is read from memory at places that depend on a variable."""
        e = self._element()
        return e is not None and any(one.op == "load" and _mentions(one.attr[1], {name}) for one in walk([e]))


def _mentions(position: Ix, names: set[str]) -> bool:
    return any(isinstance(a, Var) and a.name in names for a in position.atoms())


def _seen(body: CallBody, f: AttentionProblem, mask: Tensor | None) -> Tensor | None:
    """Whether a score depends on its product; None where all do. mask: as in emit_score."""
    c = body.c
    if mask is None or (f.scores is None and mask.dtype != "bool"):
        return None
    if f.scores is None:
        return mask
    needed = needs_product(c.arena, mask.at(c.probe(mask.shape)))
    if needed.op == "const":
        return None
    return c.tensor("bool", mask.shape, lambda index: needs_product(c.arena, mask.at(index)))


def needs_product(arena: ExprArena, e: E) -> E:
    """Whether a score's value depends on the product, as a truth value of what chooses between its parts."""
    done: dict[int, E] = {}
    for one in walk([e]):
        parts = [done[a.id] for a in one.args]
        if one.op == PRODUCT:
            done[one.id] = arena.const(True, "bool")
        elif one.op in ("sel", "guard") and _is(parts[0], False):
            done[one.id] = _chosen(arena, one.args[0], parts[1], parts[2])
        else:
            done[one.id] = _any(arena, parts, closed=one.op in ("loop", "load", "index"))
    return done[e.id]


def _chosen(arena: ExprArena, test: E, a: E, b: E) -> E:
    """test ? a : b, by truth values alone where one is a constant."""
    if a is b:
        return a
    if _is(a, True) and _is(b, False):
        return test
    if _is(a, False) and _is(b, True):
        return arena.unary("!", test)
    return arena.guard(test, a, b)


def _any(arena: ExprArena, parts: list[E], *, closed: bool) -> E:
    """Whether one of the parts is true; of an expression whose parts make sense in it alone, true if one may be."""
    open_parts = [one for one in dict.fromkeys(parts) if not _is(one, False)]
    if not open_parts or closed or any(_is(one, True) for one in open_parts):
        return arena.const(bool(open_parts), "bool")
    total = open_parts[0]
    for one in open_parts[1:]:
        total = arena.binary("||", total, one, "bool")
    return total


def _is(e: E, value: bool) -> bool:
    return e.op == "const" and e.attr is value


__all__ = ["HiddenKeys", "needs_product"]
