"""Views that the plan makes of stored tensors for library calls, so that no kernel copies what a view can say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hipwright.capture.graph import Meta, Node, short
from hipwright.engine.ir.index import ONE, ZERO, Ix
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.operators import ATTENTION as WRITTEN
from hipwright.engine.lower.table import as_int
from hipwright.engine.lower.values import Tensor
from hipwright.engine.partition.state import LoweringState, PlanView

ATTENTION = "scaled_dot_product_attention"
"""The library's attention reads tensors of any strides as fast as contiguous ones (products would copy them)."""
SELECTING = ("transpose", "permute", "t", "unsqueeze", "select", "slice")
SHAPING = ("view", "_unsafe_view", "reshape")
COPIES = ("clone", "contiguous", "alias", "detach")
PIECES = ("split", "split_with_sizes", "chunk")


class PlanViews:
    """The views of one lowering. ensure: the plan's name of a tensor, by `LibraryCalls.ensure`."""

    def __init__(
        self,
        state: LoweringState,
        nodes: Mapping[str, Node],
        ensure: Callable[..., str],
        meta_of: Callable[[str], Meta],
    ) -> None:
        self.state, self.c, self.out, self.values = state, state.c, state.out, state.values
        self.nodes, self._ensure, self._meta_of = nodes, ensure, meta_of
        self._made: dict[str, str] = {}

    def of(self, name: str, *, strided: bool) -> str | None:
        """The plan's view for a transpose or selection of a stored tensor; None where a copy would be needed.

        strided: the reader takes any strides as well as contiguous rows, so that pieces of a tensor stay views too.
        """
        if name in self._made:
            return self._made[name]
        node = self.nodes.get(name)
        found = self._view(node, strided) if node is not None else None
        if found is None:
            return None
        source, operation = found
        base = self._ensure(source, strided=strided)
        view = self._made[name] = self.c.unique(f"{name}_view")
        self.out.views.append(PlanView(view, base, operation))
        self.out.metas[view] = self._meta_of(name)
        return view

    def _view(self, node: Node, strided: bool) -> tuple[str, str] | None:
        """(what a node is a view of, how it is spelled behind a name)."""
        kind = short(node.op)
        if kind == "getitem":
            return self._piece(node) if strided else None
        if kind not in SELECTING + SHAPING:
            return None
        source = str(node.args[0]["node"])
        if kind in ("_unsafe_view", "reshape"):
            source = self._behind_copies(source)
            if not self._is_transposed_attention(source):
                return None
        inner = self.values[source]
        if not isinstance(inner, Tensor):
            return None
        free = inner.buffer or self._is_transposed_attention(source) or (strided and self._splits(node, source))
        if kind == "view" and not free:
            return None
        if self.state.element_weight(inner) > 2 and self.state.reader_counts.get(source, 0) < 1:
            return None
        if kind in SHAPING and node.op != "aten.view.dtype":
            kind = "reshape"  # an input may lie in memory as a view of other sizes cannot
        return source, view_operation(kind, [self.state.resolve(a) for a in node.args[1:]], inner.rank)

    def _piece(self, node: Node) -> tuple[str, str] | None:
        """A result of unbind, split or chunk of what is stored, or of a view of it."""
        maker, number = self.nodes.get(node.args[0]["node"]), as_int(node.args[1])
        kind = short(maker.op) if maker is not None else ""
        if maker is None or kind not in ("unbind", *PIECES) or not self._is_stored(maker.args[0]["node"]):
            return None
        source = str(maker.args[0]["node"])
        rank = self.values[source].rank
        given = [*maker.args[1:], *maker.kwargs.values()]
        at = 0 if kind == "unbind" else 1
        dim = as_int(given[at]) % rank if len(given) > at else 0
        if kind == "unbind":
            return source, f".select({dim}, {number})"
        sizes = [self.c.shape(meta)[dim] for meta in maker.outs if meta is not None]
        start = sum(sizes[:number], ZERO)
        return source, view_operation("slice", [dim, start, start + sizes[number]], rank)

    def _is_stored(self, name: str) -> bool:
        """Whether a value lies in memory, or is a chain of views of one that does."""
        value = self.values[name]
        if isinstance(value, Tensor) and value.buffer:
            return True
        node = self.nodes.get(name)
        if node is None or short(node.op) not in (*SELECTING, "view"):
            return False
        return self._is_stored(node.args[0]["node"])

    def _splits(self, node: Node, source: str) -> bool:
        """Whether a view only divides dimensions of a piece of a stored tensor, which any strides allow."""
        maker = self.nodes.get(source)
        if maker is None or maker.op != "getitem" or self._piece(maker) is None:
            return False
        return divides(self.values[source].shape, self.c.shape(self._meta_of(node.name)))

    def _behind_copies(self, name: str) -> str:
        """The value that a chain of copies copies."""
        node = self.nodes.get(name)
        while node is not None and short(node.op) in COPIES:
            name = str(node.args[0]["node"])
            node = self.nodes.get(name)
        return name

    def _is_transposed_attention(self, name: str) -> bool:
        """Whether this is the library's attention with heads and rows exchanged, which on GPUs is its memory layout."""
        node = self.nodes.get(name)
        if node is None or short(node.op) not in ("transpose", "permute"):
            return False
        inner = node.args[0]["node"]
        return inner in self.out.library and short(self.nodes[inner].op) in (ATTENTION, WRITTEN)


def divides(old: Sequence[Ix], new: Sequence[Ix]) -> bool:
    """Whether the new sizes come of dividing single dimensions of the old ones."""
    left = list(new)
    for size in old:
        product = ONE
        while left and (product != size or (left[0] == ONE and size != ONE)):
            product = product * left.pop(0)
        if product != size:
            return False
    return all(size == ONE for size in left)


def view_operation(kind: str, args: Iterable[Any], rank: int) -> str:
    """A view of a tensor of this rank as plan text, to be put behind its name."""
    listed = list(args)
    if kind == "slice":
        padded = [*listed, *[None] * (4 - len(listed))]
        dim, start, end, step = padded[0], padded[1], padded[2], padded[3]
        stop = "" if end is None or (isinstance(end, int) and end >= 1 << 62) else _spelled(end)
        first = "" if not start or start == ZERO else _spelled(start)
        inner = f"{first}:{stop}" + (f":{_spelled(step)}" if step not in (None, 1) else "")
        return f"[{', '.join([':'] * (int(dim or 0) % rank) + [inner])}]"
    arguments = ", ".join(f"({', '.join(map(_spelled, a))})" if isinstance(a, list) else _spelled(a) for a in listed)
    return f".{kind}({arguments})"


def _spelled(value: Any) -> str:
    """A number or size as plan text."""
    return to_python(value) if isinstance(value, Ix) else str(value)
