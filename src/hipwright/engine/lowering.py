"""A graph becomes items and library calls: which operator is written in HIP, what is kept in memory, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hipwright.engine import calls, channels_last
from hipwright.engine.expr import COMPUTE, E, walk, weight
from hipwright.engine.graph import Graph, Input, Meta, Node, references, short
from hipwright.engine.index import ONE, Ix, ix
from hipwright.engine.knobs import Choice
from hipwright.engine.lower import indexing, loss, pointwise, reduce, scores, statistics, views, window
from hipwright.engine.lower.core import TABLE, Call, Context, Item, NotLowered, Tensor
from hipwright.engine.sizes import SizeReader, evaluate

_TABLES = (indexing, loss, pointwise, reduce, scores, statistics, views, window)  # importing them fills TABLE

HEAVY = {"mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "conv1d", "conv2d", "conv3d", "convolution", "einsum",
         "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention", "lstm", "gru",
         "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "bilinear", "dot", "mv",
         "addmv", "addbmm", "outer", "chain_matmul", "tensordot", "inner", "linalg_multi_dot"}  # fmt: skip
"""Matrix products, convolutions, attention and recurrent cells: a call template's (calls.py) or the library's."""
BIASED = {"linear": 2, "conv1d": 2, "conv2d": 2, "conv3d": 2, "conv_transpose1d": 2, "conv_transpose2d": 2,
          "conv_transpose3d": 2}  # fmt: skip
SUMMED = {"aten.baddbmm.default": "aten.bmm.default", "aten.addmm.default": "aten.mm.default"}
"""Products that are added to a tensor, which the library would copy to the result first, and the products alone."""
VIEWS = {"view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "permute", "transpose",
         "t", "expand", "select", "slice", "split", "chunk", "unbind", "getitem", "split_with_sizes", "detach",
         "alias", "clone", "dropout", "contiguous", "expand_as", "lift_fresh_copy", "view_as"}  # fmt: skip
TURNED = {"transpose", "permute", "t"}
WINDOWED = ("max_pool", "avg_pool", "adaptive", "im2col", "upsample", "_adaptive", "cosine_similarity")
DEEP = 48
SMALL_TURN = 1 << 18
"""Elements up to which a launch costs more than a product's reads across rows."""


@dataclass(eq=False)
class View:
    """A view made in the plan for a library call: `name = text`."""

    name: str
    text: str
    source: str


@dataclass(eq=False)
class Lowered:
    """Everything the plan needs. steps are in an order that respects dependencies."""

    graph: Graph
    context: Context
    items: list[Item] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    metas: dict[str, Meta] = field(default_factory=dict)
    tensors: dict[str, Input] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    in_hip: dict[str, str] = field(default_factory=dict)
    library: dict[str, str] = field(default_factory=dict)
    structure: dict[str, Choice] = field(default_factory=dict)  # library or template, per call


class Lowering:
    """Walks the graph once."""

    def __init__(self, graph: Graph, choices: Mapping[str, Any]) -> None:
        self.graph = graph
        self.choices = choices
        hints = {s.name: s.hint for s in graph.symbols}
        self.reader = SizeReader([s.name for s in graph.symbols])
        self.c = Context(self.reader, hints)
        self.c.wide = bool(choices.get("wide", False))
        self.plain = bool(choices.get("library", False))  # every operator stays the library's
        self.epilogue = bool(choices.get("fuse_bias", True))
        self.out = Lowered(graph, self.c)
        self.values: dict[str, Any] = {}
        self.depth: dict[str, int] = {}
        self.nodes = {n.name: n for n in graph.nodes}
        self.users = _users(graph)
        self.plan_views: dict[str, str] = {}
        self.c.names |= {i.name for i in graph.inputs} | {s.name for s in graph.symbols}

    def run(self) -> Lowered:
        """Lower every node. Raises ValueError for sizes that cannot be read."""
        self._read_shapes()
        for tensor in self.graph.inputs:
            self._input(tensor)
        for node in self.graph.nodes:
            self._node(node)
        self._finish()
        self.out.items = self.c.items
        return self.out

    def _read_shapes(self) -> None:
        """Read every size up front, so that derived sizes have their hints."""
        metas = [i.meta for i in self.graph.inputs] + [m for n in self.graph.nodes for m in n.outs if m is not None]
        for meta in metas:
            for size in meta.shape:
                self.reader.read(size)
        for name, text in self.reader.derived.items():
            scope = {"min": min, "max": max, **self.c.hints}
            self.c.hints[name] = int(eval(text, {"__builtins__": {}}, scope))

    # ------------------------------------------------------------ nodes

    def _input(self, tensor: Input) -> None:
        shape = self.c.shape(tensor.meta)
        if tensor.value is not None:
            self.values[tensor.name] = self._constant(tensor, shape)
            return
        self.out.tensors[tensor.name] = tensor
        self.out.metas[tensor.name] = tensor.meta
        self.values[tensor.name] = self.c.stored(tensor.name, tensor.meta.dtype, shape)

    def _constant(self, tensor: Input, shape: list[Ix]) -> Tensor:
        """A small constant: its values are written into the kernel."""
        flat: list[Any] = []

        def collect(value: Any) -> None:
            if isinstance(value, (list, tuple)):
                for v in value:
                    collect(v)
            else:
                flat.append(value)

        collect(tensor.value)
        kind = COMPUTE[tensor.meta.dtype]

        def at(index: Any) -> Any:
            from hipwright.engine.shapes import flatten

            position = flatten(shape, index)
            out = self.c.arena.const(flat[-1] if flat else 0, kind)
            for k in reversed(range(len(flat) - 1)):
                out = self.c.arena.select(
                    self.c.arena.compare(position, "==", ix(k)), self.c.arena.const(flat[k], kind), out
                )
            return out

        return self.c.tensor(tensor.meta.dtype, shape, at)

    def _node(self, node: Node) -> None:
        if node.op == "getitem":
            source = self.values[node.args[0]["node"]]
            self.values[node.name] = source[node.args[1]] if isinstance(source, (tuple, list)) else source
            self.depth[node.name] = self.depth.get(node.args[0]["node"], 0)
            return
        self.c.origin = plain(node.name)
        kind = short(node.op)
        if self.plain:
            self._library(node, "the choice: no kernels")
            return
        why = self._template(node, kind) if calls.templates(kind) else None
        if why == "":
            return
        if kind in HEAVY:
            self._library(node, why or "no template writes this operator yet: it is the library's")
            return
        if kind in TURNED:
            self._settle(node.args[0]["node"], node.name)
        before = len(self.c.items)
        try:
            value = self._lower(node)
        except NotLowered as why:
            self.c.rollback(before)
            self._library(node, str(why))
            return
        self.out.in_hip[node.name] = kind
        self.values[node.name] = value
        self._label(node, value)
        self._keep(node, kind, value)

    def _template(self, node: Node, kind: str) -> str:
        """Let a call template write the node: "" when one does, else why not."""
        call = calls.KernelCall(self._cropped(node, kind), kind, self.c, self._resolve(list(node.args)),
                                {k: self._resolve(v) for k, v in node.kwargs.items()}, self.choices,
                                self._followed(node.name))  # fmt: skip
        offers, why = calls.offers(call)
        if not offers:
            return why or "no template writes this form of it"
        usual = "library" if kind in HEAVY or node.op not in TABLE else "generic"
        default = next((o.name for o in offers if o.default), usual)
        options = tuple(o.name for o in offers)
        if node.op.startswith("hip."):  # our own operators have templates only
            default = default if default in options else options[0]
        else:
            options = (usual, *options)
        if len(options) > 1:
            self.out.structure[f"call:{node.name}"] = Choice(options=options, default=default)
        chosen = self.choices.get(f"call:{node.name}", default)
        chosen = chosen if chosen in options else default
        offer = next((o for o in offers if o.name == chosen), None)
        if offer is None:
            return f"call:{node.name} is {usual}" + (": by the static rule" if default == usual else "")
        _, value = calls.place(call, offer)
        self.out.in_hip[node.name] = kind
        self.values[node.name] = value
        self._label(node, value)
        self._keep(node, kind, value)
        return ""

    def _cropped(self, node: Node, kind: str) -> Node:
        """A convolution of which only the first outputs are read, as a causal one's, makes no others in a template."""
        made = node
        if kind in ("conv1d", "conv2d", "conv3d"):
            last: Node | None = node
            while last is not None and (last := self._first_of(last, int(kind[4]))) is not None:
                made = msgspec.structs.replace(node, outs=last.outs)
        return made

    def _first_of(self, node: Node, n: int) -> Node | None:
        """The slice that alone reads a value, if it keeps the first elements of one of the last n dimensions."""
        readers = [r for r in self.graph.nodes if node.name in references([*r.args, *r.kwargs.values()])]
        wanted = [*references(self.graph.output), *(m.node for m in self.graph.mutations)]
        if len(readers) != 1 or node.name in wanted or readers[0].op != "aten.slice.Tensor" or readers[0].kwargs:
            return None
        given = list(readers[0].args[1:])
        dim, start, _, step = given + [0, None, None, 1][len(given) :]
        rank = len(readers[0].outs[0].shape) if readers[0].outs[0] else 0
        return readers[0] if rank and dim % rank >= rank - n and start in (None, 0) and step == 1 else None

    def _lower(self, node: Node) -> Any:
        handler = TABLE.get(node.op)
        if handler is None:
            raise NotLowered("no template writes this operator yet")
        metas = list(node.outs)
        meta: Any = metas[0] if len(metas) == 1 and not _many(node) else metas
        if short(node.op).startswith(WINDOWED):
            self._realise_arguments(node)
        try:
            return handler(self.c, meta, *self._resolve(list(node.args)),
                           **{k: self._resolve(v) for k, v in node.kwargs.items()})  # fmt: skip
        except (TypeError, KeyError, IndexError, AttributeError, StopIteration) as problem:
            raise NotLowered(f"arguments not foreseen ({type(problem).__name__}: {problem})") from problem

    def _settle(self, name: str, turned: str) -> None:
        """What is computed from a template's result is kept before it is turned: so it is that kernel's epilogue.

        So is what is computed from a reduction and small, if a product reads it turned: one launch instead of two.
        """
        value = self.values[name]
        if isinstance(value, Tensor) and not value.buffer:
            element = calls.probe(self.c, value)
            if element.op == "load" or calls.unfinished(element):
                return
            if calls.computed(self.c, element) or (self._reduced(element, value) and self._multiplied(turned)):
                self.values[name] = self.c.realise(value, plain(name))

    def _reduced(self, element: E, value: Tensor) -> bool:
        """Does a small value read what a reduction over its rows made?"""
        rows = {i.name for i in self.c.items if i.kind not in ("pw", "call")}
        small = self.c.hints_of(value.shape) <= SMALL_TURN
        return small and any(e.op == "load" and e.attr[0] in rows for e in walk([element]))

    def _multiplied(self, name: str) -> bool:
        """Do products alone read a value?"""
        readers = [n for n in self.graph.nodes if name in references([*n.args, *n.kwargs.values()])]
        return bool(readers) and all(short(n.op) in ("linear", "matmul", "bmm", "mm") for n in readers)

    def _realise_arguments(self, node: Node) -> None:
        """A window reads each element several times: compute it once when that is dear."""
        for name in references(list(node.args)):
            value = self.values[name]
            if isinstance(value, Tensor) and not value.buffer and self._weight(value) > 8:
                self.values[name] = self.c.realise(value, name)

    def _weight(self, value: Tensor) -> int:
        index = [ix(self.c.arena.var("p", s)) for s in value.shape]
        return weight([value.at(index)])

    def _label(self, node: Node, value: Any) -> None:
        if isinstance(value, Tensor) and not value.buffer and not value.label:
            value.label = plain(node.name)

    def _keep(self, node: Node, kind: str, value: Any) -> None:
        """Keep a value in memory when several places would compute it again."""
        depth = 1 + max((self.depth.get(name, 0) for name in references(list(node.args))), default=0)
        self.depth[node.name] = depth
        if not isinstance(value, Tensor) or value.buffer or kind in VIEWS:
            return
        if (self.users.get(node.name, 0) > 1 and self._weight(value) > 4) or depth > DEEP:
            if calls.unfinished(calls.probe(self.c, value)):
                return
            self.values[node.name] = self.c.realise(value, plain(node.name))
            self.depth[node.name] = 0

    def _resolve(self, arg: Any) -> Any:
        if isinstance(arg, dict):
            if "node" in arg:
                return self.values[arg["node"]]
            if "size" in arg:
                size = self.reader.read(arg["size"])
                return size.value if size.value is not None else self._hinted(size)
            if "float" in arg:
                return float(arg["float"])
            return arg.get("dtype")
        if isinstance(arg, (list, tuple)):
            return [self._resolve(a) for a in arg]
        return arg

    def _hinted(self, size: Ix) -> Ix:
        for name, text in self.reader.derived.items():
            if name not in self.c.hints:
                scope = {"min": min, "max": max, **self.c.hints}
                self.c.hints[name] = int(eval(text, {"__builtins__": {}}, scope))
        evaluate(size, self.c.hints)
        return size

    # ------------------------------------------------------------ library calls

    def _library(self, node: Node, reason: str) -> None:
        self.out.library[node.name] = reason
        call = Call(node, reason)
        call.node, bias = self._unbiased(node)
        turned = self._turned(node)
        names = references([*call.node.args, *node.kwargs.values()])
        call.refs = {n: turned[n] if n in turned else self.ensure(n) for n in names}
        self.out.calls.append(call)
        call.last = bool(turned)
        results: list[Tensor | None] = []
        for number, meta in enumerate(node.outs):
            name = self.c.unique(node.name if len(node.outs) == 1 and not _many(node) else f"{node.name}_{number}")
            call.outputs.append(name)
            if meta is None:
                results.append(None)
                continue
            kept = self.out.metas[name] = channels_last.turned_meta(meta) if turned else meta
            stored = self.c.stored(name, kept.dtype, self.c.shape(kept))
            results.append(calls.permuted(self.c, stored, channels_last.FIRST) if turned else stored)
        value: Any = tuple(results) if _many(node) or len(results) > 1 else results[0]
        if bias is not None:
            value = self._add_bias(node, value, self.values[bias["node"]])
        self.values[node.name] = value

    def _unbiased(self, node: Node) -> tuple[Node, Any]:
        """(the call without its bias, the bias) where a kernel that reads the result can add it, else (node, None)."""
        args, op = list(node.args), node.op
        place = 0 if op in SUMMED else BIASED.get(short(op), len(args))
        if place >= len(args) or args[place] is None or not self.epilogue or not self._feeds_kernel(node.name):
            return node, None
        bias = args[place]
        if op not in SUMMED:
            args[place] = None
        elif node.kwargs or (short(op) == "addmm" and self.values[bias["node"]].rank < 2):  # cuBLASLt adds a row itself
            return node, None
        else:
            op, args = SUMMED[op], args[1:]
        return msgspec.structs.replace(node, op=op, args=tuple(args)), bias

    def _turned(self, node: Node) -> dict[str, str]:
        """The image of a convolution that gets it channels last, as {its name: the plan's view of it}."""
        if self.plain or short(node.op) not in channels_last.KINDS:
            return {}
        image, weight = (self.values[a["node"]] for a in node.args[:2])
        usual = channels_last.usual(self.c, node, image, weight)
        if usual is None:
            return {}
        key = f"layout:{node.name}"
        self.out.structure[key] = Choice(options=(False, True), default=usual)
        if not self.choices.get(key, usual):
            return {}
        name = node.args[0]["node"]
        kept = channels_last.image(self.c, image, plain(name), self._buffer_shape)
        view = self.c.unique(f"{kept}_view")
        self.out.views.append(View(view, f"{kept}.permute({', '.join(map(str, channels_last.FIRST))})", kept))
        self.out.metas[view] = self._known(name)
        return {name: view}

    def _buffer_shape(self, buffer: str) -> list[Ix]:
        """The shape of a buffer as the plan has it."""
        item = next((i for i in self.c.items if i.name == buffer), None)
        return list(item.shape) if item is not None else self.c.shape(self.out.metas[buffer])

    def _feeds_kernel(self, name: str) -> bool:
        """Some reader of the value (through views) is written in HIP, so the bias costs nothing there."""
        for node in self.graph.nodes:
            if name in references([*node.args, *node.kwargs.values()]):
                kind = short(node.op)
                if kind in VIEWS:
                    if self._feeds_kernel(node.name):
                        return True
                elif kind not in HEAVY and node.op in TABLE:
                    return True
        return False

    def _followed(self, name: str) -> bool:
        """A pointwise operator reads the value, through views at most."""
        for node in self.graph.nodes:
            if name in references([*node.args, *node.kwargs.values()]):
                handler = TABLE.get(node.op)
                if short(node.op) in VIEWS:
                    if self._followed(node.name):
                        return True
                elif handler is not None and handler.__module__ == pointwise.__name__:
                    return True
        return False

    def _add_bias(self, node: Node, value: Tensor, bias: Tensor) -> Tensor:
        """The bias joins the kernel that reads the product."""
        if node.op in SUMMED:
            return self._plus(node, value, bias)
        channel = value.rank - 1 if short(node.op) == "linear" else value.rank - int(short(node.op)[-2]) - 1
        shaped = views.remap(self.c, bias, [s if k == channel else ONE for k, s in enumerate(value.shape)],
                             lambda i: [i[channel]])  # fmt: skip
        return self._plus(node, value, shaped)

    def _plus(self, node: Node, value: Tensor, bias: Tensor) -> Tensor:
        out = self.c.map(lambda a, b: self.c.arena.binary("+", a, b), value, bias, dtype=value.dtype, shape=value.shape)
        out.label = f"{node.name}_bias"
        return out

    def ensure(self, name: str) -> str:
        """The plan's name for a tensor a library call reads, making a view or a kernel for it."""
        value = self.values[name]
        if isinstance(value, (tuple, list)):
            raise NotLowered("a tuple as an argument")
        if value.buffer:
            return str(value.buffer)
        view = self.plan_views.get(name) or self._plan_view(name)
        if view is not None:
            return view
        kept = self.c.realise(value, plain(name), between=False)
        self.values[name] = kept
        self.out.metas.setdefault(kept.buffer, self._meta_of(name))
        return kept.buffer

    def _known(self, name: str) -> Meta:
        """The meta of an input or a node."""
        return self.out.tensors[name].meta if name in self.out.tensors else self._meta_of(name)

    def _meta_of(self, name: str) -> Meta:
        node = self.nodes[name]
        meta = node.outs[0]
        assert meta is not None
        return meta

    def _turned_attention(self, name: str) -> bool:
        """Is this the library's attention with heads and rows exchanged? On GPUs it writes them so: a view of it."""
        node = self.nodes.get(name)
        if node is None or short(node.op) not in ("transpose", "permute"):
            return False
        inner = node.args[0]["node"]
        return inner in self.out.library and short(self.nodes[inner].op) == "scaled_dot_product_attention"

    def _plan_view(self, name: str) -> str | None:
        """Transposes and selections stay views in the plan; anything that would copy becomes a kernel."""
        node = self.nodes.get(name)
        if node is None or short(node.op) not in ("transpose", "permute", "t", "unsqueeze", "select", "slice", "view"):
            return None
        source = node.args[0]["node"]
        inner = self.values[source]
        kind = short(node.op)
        if kind == "view" and not (isinstance(inner, Tensor) and inner.buffer):
            if not self._turned_attention(source):
                return None
            kind = "reshape"
        if not isinstance(inner, Tensor) or (self._weight(inner) > 2 and self.users.get(source, 0) < 1):
            return None
        base = self.ensure(source)
        text = _view_text(kind, base, [self._resolve(a) for a in node.args[1:]])
        unique = self.c.unique(f"{name}_view")
        self.out.views.append(View(unique, text, base))
        self.out.metas[unique] = self._meta_of(name)
        self.plan_views[name] = unique
        return unique

    # ------------------------------------------------------------ outputs

    def _finish(self) -> None:
        returned: set[str] = set()
        for name in references(self.graph.output):
            if name not in self.out.outputs:
                self.out.outputs[name] = self._output(name, returned)
                returned.add(self.out.outputs[name])
        for mutation in self.graph.mutations:
            value = self.values[mutation.node]
            buffer = next((i.name for i in self.graph.inputs if i.access == mutation.access), "")
            target = self.out.tensors.get(buffer)
            if target is None:
                raise ValueError(f"{mutation.access} is written but never read")
            item = Item(self.c.unique(f"new_{buffer.removeprefix('b_')}"), "pw", target.meta.dtype, value.shape,
                        self.c.cast(value, target.meta.dtype).at, node=mutation.node, target=buffer)  # fmt: skip
            self.c.items.append(item)

    def _output(self, name: str, returned: set[str]) -> str:
        value = self.values[name]
        self.c.origin = plain(name)
        mine = isinstance(value, Tensor) and value.buffer and value.buffer not in self.out.tensors
        if mine and value.buffer not in returned:
            return str(value.buffer)
        fresh = self.c.tensor(value.dtype, value.shape, value.at)
        kept = self.c.realise(fresh, plain(name), between=False)
        return kept.buffer


def plain(name: str) -> str:
    """A node's name as people say it."""
    return re.sub(r"^_?native_(batch|layer|group)_norm(_legit)?(_functional|_no_training)?", r"\1_norm", name)


def _many(node: Node) -> bool:
    return short(node.op) in ("split", "chunk", "unbind", "split_with_sizes", "unsafe_split", "tensor_split",
                              "broadcast_tensors")  # fmt: skip


def _users(graph: Graph) -> dict[str, int]:
    """How many operators read each value, looking through views; outputs and buffer updates count."""
    direct: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in set(references([*node.args, *node.kwargs.values()])):
            direct.setdefault(name, []).append(node)
    returned = list(references(graph.output)) + [m.node for m in graph.mutations]
    counts: dict[str, int] = {}
    for node in reversed(graph.nodes):
        total = returned.count(node.name)
        for user in direct.get(node.name, []):
            total += counts.get(user.name, 0) if short(user.op) in VIEWS else 1
        counts[node.name] = total
    return counts


def _view_text(kind: str, base: str, args: Iterable[Any]) -> str:
    listed = list(args)
    if kind == "slice":
        padded = [*listed, *[None] * (4 - len(listed))]
        dim, start, end, step = padded[0], padded[1], padded[2], padded[3]
        stop = "" if end is None or (isinstance(end, int) and end >= 1 << 62) else str(end)
        first = "" if not start else str(start)
        inner = f"{first}:{stop}" + (f":{step}" if step not in (None, 1) else "")
        return f"{base}[{', '.join([':'] * int(dim or 0) + [inner])}]"
    spelled = ", ".join(f"({', '.join(map(str, a))})" if isinstance(a, list) else str(a) for a in listed)
    return f"{base}.{kind}({spelled})"
