"""The library's attention in the forms that its kernels take: without a mask where the mask is a band of positions, and
with the heads of keys and values that queries share.

A mask in memory costs its making, and a kernel that reads it computes what it hides. For a band there are the causal
form of the operator, of as many queries as keys, and the kernel of windows (Dao, "FlashAttention-2", 2023), which skips
what lies outside. Its bands are aligned at the last query and the last key, those of a graph at the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from hipwright.capture.graph import Meta, Node, plain, short
from hipwright.engine.ir.expr import HALVES, E, indices, walk
from hipwright.engine.ir.index import ONE, ZERO, Ix, nonneg
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.knobs import SPLIT, Choice
from hipwright.engine.lower.values import Index, LibraryCall, Tensor
from hipwright.engine.partition.library_calls import LibraryCalls
from hipwright.engine.partition.state import LoweringState, PlanView
from hipwright.engine.rewrite.attention_pattern import Finder, repeated
from hipwright.engine.rewrite.contractions import Operand
from hipwright.engine.templates.attention.bands import Band, band_of, scaled_band, seen_pairs
from hipwright.engine.templates.attention.problem import MAX_HEAD_SIZE

OPERATOR = "aten.scaled_dot_product_attention.default"
WINDOW_OPERATOR = "aten._flash_attention_forward.default"
PACK = 8
"""Head sizes of the kernel of windows are multiples of it."""
TENSOR, ADDED, UNMASKED, CAUSAL, WINDOW = "tensor", "added", "unmasked", "causal", "window"
"""Values of `mask:<node>`: the mask as it is; as numbers that are added, which the library would make of truth values
in two passes of its own (154 us of 8192 x 8192 on an H200); none; the operator's causal form; the kernel of windows.
"""
REPEATED, SHARED = "repeated", "shared"
"""Values of `heads:<node>`: whether heads that queries share are repeated in memory."""
TURN = ".transpose(1, 2)"


@dataclass(frozen=True)
class _Window:
    """A band as the kernel of windows counts it: keys to the left and right of the place that a query has where the
    last query lies at the last key.
    """

    left: Ix | None
    right: Ix | None


class AttentionCalls:
    """The library's attention of one lowering. What only NVIDIA's libraries are known to do well is the default where
    the choice SPLIT tells of a run for them; calls without a mask are for every target.
    """

    def __init__(self, state: LoweringState, library: LibraryCalls) -> None:
        self.state, self.c, self.out, self.values, self.library = state, state.c, state.out, state.values, library

    def add(self, node: Node, reason: str) -> None:
        """Leaves attention to the library, in the form that is chosen."""
        q, k, v = (self.values[a["node"]] for a in node.args[:3])
        if not all(isinstance(t, Tensor) and t.rank == 4 for t in (q, k, v)) or _given(node, 4, "dropout_p", 0.0):
            self.library.add(node, reason)
            return
        form, window = self._masked(node, q, k, v)
        form = self._shared(form, window, q)
        if window is None:
            self.library.add(form, reason)
        else:
            self._add_window(form, window, reason)

    def written(self, node: Node) -> Callable[[str], None] | None:
        """What leaves attention that a module writes out to the library, where its scores are scaled products in a band
        of positions; None where the library does not compute it.
        """
        q, k, v = (self.values[a["node"]] for a in node.args[:3])
        scores, out = self.values[node.args[3]["node"]], node.outs[0]
        same = {t.dtype for t in (q, k, v)} == {out.dtype if out else ""} and all(t.rank == 4 for t in (q, k, v))
        if len(node.args) > 4 or not same or not _has_kernel(q, k, v):
            return None
        found = scaled_band(scores, q.shape[-2], k.shape[-2])
        if found is None:
            return None
        band, factor = found
        plainer, window = _without_mask(band, q, k), self._window(band, q, k)
        args = (*node.args[:3], *((None, 0.0, True) if plainer == CAUSAL else ()))
        grouped = {"enable_gqa": True} if plainer and q.shape[1] != k.shape[1] else {}
        form = msgspec.structs.replace(node, op=OPERATOR, args=args, kwargs={"scale": factor, **grouped})
        if plainer:
            return lambda reason: self.library.add(form, reason)
        return None if window is None else lambda reason: self._add_window(form, window, reason)

    # ------------------------------------------------------------ masks

    def _masked(self, node: Node, q: Tensor, k: Tensor, v: Tensor) -> tuple[Node, _Window | None]:
        """(the call with its mask in the chosen form, the window of which it is a call)."""
        given = _given(node, 3, "attn_mask")
        mask = self.values[given["node"]] if isinstance(given, dict) else None
        if not isinstance(mask, Tensor) or _given(node, 5, "is_causal", False):
            return node, None
        band = band_of(mask, q.shape[-2], k.shape[-2])
        window = self._window(band, q, k) if band is not None and _has_kernel(q, k, v) else None
        usual = TENSOR
        options = [TENSOR]
        if mask.dtype == "bool" and q.dtype in HALVES:
            options.append(ADDED)
            usual = ADDED if self._on_nvidia else usual
        if band is not None and window is not None:
            options.append(WINDOW)
            usual = WINDOW if self._on_nvidia and self._skips(band, q, k) else usual
        if band is not None and (plainer := _without_mask(band, q, k)):
            options.append(plainer)
            usual = plainer
        chosen = self._chosen(f"mask:{node.name}", options, usual)
        if chosen in (TENSOR, ADDED):
            name = self._narrow(given["node"])
            name = self._added(name, q.dtype) if chosen == ADDED else name
            return (_with_mask(node, {"node": name}) if name != given["node"] else node), None
        return _with_mask(node, None, causal=chosen == CAUSAL), window if chosen == WINDOW else None

    def _window(self, band: Band, q: Tensor, k: Tensor) -> _Window | None:
        """A band for the kernel of windows, None where it does not hold each query's own place."""
        after = k.shape[-2] - q.shape[-2]
        written = self.state.reader.written_out
        left = None if band.left is None else written(band.left + after)
        right = None if band.right is None else written(band.right - after)
        sides = [side for side in (left, right) if side is not None]
        return _Window(left, right) if sides and all(map(nonneg, sides)) else None

    def _skips(self, band: Band, q: Tensor, k: Tensor) -> bool:
        """Whether the band hides some keys, at the captured sizes."""
        queries, keys = self.c.hint(q.shape[-2]), self.c.hint(k.shape[-2])
        left, right = (None if side is None else self.c.captured(side) for side in (band.left, band.right))
        return seen_pairs(left, right, queries, keys) < queries * keys

    def _narrow(self, name: str) -> str:
        """A mask before it was repeated for batches and heads: the library takes one for all of them."""
        nodes, value = self._finder.nodes, self.values[name]
        while name in nodes and short(nodes[name].op) == "expand":
            source = nodes[name].args[0]["node"]
            before = self.values[source]
            if not isinstance(before, Tensor) or before.rank != value.rank or before.shape[-2:] != value.shape[-2:]:
                break
            name, value = source, before
        if value.buffer or value.rank < 3:
            return name
        probe = self.c.probe(value.shape)
        used = {atom for e in walk([value.at(probe)]) for position in indices(e) for atom in position.atoms()}
        shape = [s if used & p.atoms() else ONE for s, p in zip(value.shape[:-2], probe, strict=False)]
        shape += value.shape[-2:]
        return name if shape == value.shape else self._stored(f"{name}_narrow", value.dtype, shape, value.at)

    def _added(self, name: str, dtype: str) -> str:
        """A mask of truth values as numbers that are added."""
        mask, arena = self.values[name], self.c.arena
        zero, hidden = arena.const(0.0, "float"), arena.const(float("-inf"), "float")

        def at(index: Index) -> E:
            return arena.select(mask.at(index), zero, hidden)

        return self._stored(f"{name}_added_{dtype}", dtype, mask.shape, at)

    def _stored(self, title: str, dtype: str, shape: Sequence[Ix], at: Callable[[Index], E]) -> str:
        """The name of a value made of another one, which is stored once for all calls that read it."""
        if title not in self.values:
            kept = self.values[title] = self.c.realise(self.c.tensor(dtype, shape, at), plain(title), between=False)
            self.out.metas[kept.buffer] = Meta(dtype=dtype, shape=tuple(s.value or to_python(s) for s in shape))
        return title

    # ------------------------------------------------------------ heads

    def _shared(self, node: Node, window: _Window | None, q: Tensor) -> Node:
        """The call with the heads that keys and values had before they were repeated for the queries, where chosen."""
        names = [a["node"] for a in node.args[1:3]]
        found = [self._before_repeated(name) for name in names]
        if q.dtype not in HALVES or None in found:
            return node
        k, v = (self.values[name] for name in found if name is not None)
        heads, shared, other = (t.shape[1].value for t in (q, k, v))
        if not heads or not shared or shared != other or heads % shared:
            return node
        masked = _given(node, 3, "attn_mask") is not None
        usual = SHARED if self._on_nvidia and not masked else REPEATED
        if self._chosen(f"heads:{node.name}", [REPEATED, SHARED], usual) == REPEATED:
            return node
        args = (node.args[0], *({"node": name} for name in found), *node.args[3:])
        kwargs = node.kwargs if window is not None else {**node.kwargs, "enable_gqa": True}
        return msgspec.structs.replace(node, args=args, kwargs=kwargs)

    def _before_repeated(self, name: str) -> str | None:
        """The keys or values of which a tensor repeats the heads, None for one that repeats none."""
        value = self.values[name]
        if not isinstance(value, Tensor) or value.rank != 4:
            return None
        found = repeated(Operand(name, [0, 1, 2, 3], self._finder.shape(name)), self._finder)
        return found.name if found is not None and isinstance(self.values[found.name], Tensor) else None

    # ------------------------------------------------------------ the kernel of windows

    def _add_window(self, node: Node, window: _Window, reason: str) -> None:
        """A call of the kernel of windows, which takes and gives heads behind positions."""
        q, k = (self.values[node.args[place]["node"]] for place in (0, 1))
        names = [a["node"] for a in node.args[:3]]
        refs = {name: self._turned(name) for name in dict.fromkeys(names)}
        lengths = [_argument(t.shape[-2]) for t in (q, k)]
        sides = {"window_size_left": window.left, "window_size_right": window.right}
        kwargs = {name: node.kwargs[name] for name in ("scale",) if name in node.kwargs}
        kwargs |= {name: _argument(side) for name, side in sides.items() if side is not None}
        meta = node.outs[0]
        assert meta is not None
        outs = (_turned_meta(meta), None, None, None, None)
        args = (*node.args[:3], None, None, *lengths, 0.0, False, False)
        call = LibraryCall(
            Node(name=node.name, op=WINDOW_OPERATOR, args=args, kwargs=kwargs, outs=outs), reason, refs=refs
        )
        call.outputs = [self.c.unique(f"{node.name}_{part}") for part in ("rows", "sums", "seed", "offset", "debug")]
        rows = call.outputs[0]
        self.out.library[node.name] = reason
        self.out.calls.append(call)
        self.out.metas[rows] = outs[0]
        heads_first = bool(self.values[names[0]].buffer)
        self.values[node.name] = self._turned_back(node.name, rows, meta, heads_first=heads_first)

    def _turned(self, name: str) -> str:
        """The plan's view of a tensor with heads behind positions."""
        base = self.library.ensure(name, strided=True)
        view = self.c.unique(f"{plain(name)}_rows")
        self.out.views.append(PlanView(view, base, TURN))
        self.out.metas[view] = _turned_meta(self._meta(name))
        return view

    def _turned_back(self, name: str, rows: str, meta: Meta, *, heads_first: bool) -> Tensor:
        """The result with heads before positions, which lies in the order of the queries.

        heads_first: that is this order, so that kernels read the view; they read the rows otherwise.
        """
        view = self.c.unique(name)
        self.out.views.append(PlanView(view, rows, f"{TURN}.contiguous()" if heads_first else TURN))
        self.out.metas[view] = meta
        if heads_first:
            return self.c.stored(view, meta.dtype, self.c.shape(meta))
        turned = self.out.metas[rows]
        stored = self.c.stored(rows, turned.dtype, self.c.shape(turned))

        def at(index: Index) -> E:
            first, head, row, column = index
            return stored.at([first, row, head, column])

        return Tensor(meta.dtype, self.c.shape(meta), at, buffer=view)

    # ------------------------------------------------------------ common

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.state.graph)

    @property
    def _on_nvidia(self) -> bool:
        """Whether the program is for NVIDIA's GPUs alone."""
        return bool(self.state.choices.get(SPLIT))

    def _chosen(self, key: str, options: list[str], usual: str) -> str:
        """What is chosen of the options, which are offered where there are several."""
        if len(options) > 1:
            self.out.structure[key] = Choice(options=tuple(options), default=usual)
        chosen = str(self.state.choices.get(key, usual))
        return chosen if chosen in options else usual

    def _meta(self, name: str) -> Meta:
        """What a tensor of the graph is."""
        return self._finder.meta(name)


def _given(node: Node, place: int, name: str, default: Any = None) -> Any:
    """An argument of a call by place or keyword."""
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


def _with_mask(node: Node, mask: dict[str, str] | None, *, causal: bool = False) -> Node:
    """The call with another mask."""
    kwargs = {k: v for k, v in node.kwargs.items() if k not in ("attn_mask", "dropout_p", "is_causal")}
    rest: tuple[Any, ...] = (None, 0.0, True) if causal else () if mask is None else (mask,)
    return msgspec.structs.replace(node, args=(*node.args[:3], *rest), kwargs=kwargs)


def _without_mask(band: Band, q: Tensor, k: Tensor) -> str:
    """The form of the operator without a mask that is this band, "" for none."""
    if band == Band(None, None):
        return UNMASKED
    square = q.shape[-2] == k.shape[-2]  # its causal form begins at the first key, not in all of its kernels otherwise
    return CAUSAL if square and band == Band(None, ZERO) else ""


def _has_kernel(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel of windows computes attention of these tensors."""
    sizes = [t.shape[-1].value or 0 for t in (q, k, v)]
    heads, shared = (t.shape[1].value or 0 for t in (q, k))
    grouped = bool(heads and shared) and heads % shared == 0
    same = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3]
    whole = len(set(sizes)) == 1 and 0 < sizes[0] <= MAX_HEAD_SIZE and sizes[0] % PACK == 0
    return q.dtype in HALVES and same and whole and (grouped or q.shape[1] == k.shape[1])


def _argument(size: Ix) -> Any:
    return {"size": to_python(size)} if size.value is None else size.value


def _turned_meta(meta: Meta) -> Meta:
    """A tensor with its heads and positions exchanged."""
    first, heads, rows, columns = meta.shape
    return Meta(dtype=meta.dtype, shape=(first, rows, heads, columns))


__all__ = ["AttentionCalls"]
