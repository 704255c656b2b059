"""Library calls of the plan: their results, the bias that a kernel adds, and views or kernels for what they read."""

from __future__ import annotations

from typing import Any

import msgspec

from hipwright.capture.graph import Meta, Node, plain, readers, references, returned, several, short
from hipwright.engine.ir.expr import COMPUTE, HALVES, E, indices, walk
from hipwright.engine.ir.index import ONE, Fn, Ix
from hipwright.engine.ir.shapes import flatten, reindex
from hipwright.engine.knobs import Choice
from hipwright.engine.lower import views
from hipwright.engine.lower.values import Index, LibraryCall, NotLowered, Tensor
from hipwright.engine.partition import channels_last
from hipwright.engine.partition.plan_views import ATTENTION, SHAPING, PlanViews, view_operation
from hipwright.engine.partition.readers import VIEWS, feeds_kernel
from hipwright.engine.partition.state import LoweringState, PlanView
from hipwright.engine.rewrite.forms import last_products
from hipwright.engine.templates.conv.stencil_turned import lies_channels_last
from hipwright.engine.templates.offers import permuted

BIASED = {
    "linear": 2,
    "conv1d": 2,
    "conv2d": 2,
    "conv3d": 2,
    "conv_transpose1d": 2,
    "conv_transpose2d": 2,
    "conv_transpose3d": 2,
}
WEIGHTS_LAST = "weights_last"
"""The choice whether convolutions that read channels-last images read such weights too."""
UNDEFINED = {"aten.empty.memory_format", "aten.empty_strided.default"}
"""Makers of memory that only a library call may look at, and only at its form."""
SUMMED = {"aten.baddbmm.default": "aten.bmm.default", "aten.addmm.default": "aten.mm.default"}
"""Products that add a tensor, which the library would copy to the result first: {operator: the product alone}."""


class LibraryCalls:
    """The operators that one lowering leaves to PyTorch."""

    def __init__(self, state: LoweringState) -> None:
        self.state, self.c, self.out, self.values = state, state.c, state.out, state.values
        self.graph, self.nodes = state.graph, {n.name: n for n in state.graph.nodes}
        self.given = {given.name: given.meta for given in state.graph.inputs}
        self.epilogue = bool(state.choices.get("fuse_bias", True)) and not state.library_only
        self.views = PlanViews(state, self.nodes, self.ensure, self._meta_of)
        self._turned: dict[str, str] = {}  # by name: the buffers of tensors that are stored channels last for calls
        self._wanted: dict[str, bool] = {}  # by name: whether a node is wanted channels last
        self._turned_views: dict[str, str] = {}  # by name: the plan's views of them as images

    def add(self, node: Node, reason: str) -> None:
        """Leaves a node to PyTorch."""
        self.out.library[node.name] = reason
        call = LibraryCall(node, reason)
        images = self._channels_last_image(node)
        call.node, bias = self._unbiased(node, turned=bool(images))
        names = references([*call.node.args, *node.kwargs.values()])
        strided = short(node.op) == ATTENTION
        call.refs = {n: images[n] if n in images else self.ensure(n, strided=strided) for n in names}
        self.out.calls.append(call)
        call.channels_last = bool(images)
        results: list[Any] = []
        for number, meta in enumerate(node.outs):
            name = self.c.unique(node.name if not several(node) else f"{node.name}_{number}")
            call.outputs.append(name)
            if meta is None:
                results.append(self._listed(node, number, name))
                continue
            kept = self.out.metas[name] = channels_last.permuted_meta(meta) if images else meta
            stored = self.c.stored(name, kept.dtype, self.c.shape(kept))
            results.append(permuted(self.c, stored, channels_last.TO_CHANNELS_FIRST) if images else stored)
        value: Any = tuple(results) if several(node) else results[0]
        if bias is not None:
            value = self._add_bias(node, value, self.values[bias["node"]])
        self.values[node.name] = value

    def _listed(self, node: Node, number: int, name: str) -> tuple[Tensor, ...] | None:
        """The tensors of a result that is a list among others (histogramdd); None for a result that nothing reads."""
        taken = (n for n in self.graph.nodes if n.op == "getitem" and n.args == ({"node": node.name}, number))
        found = []
        for place, meta in enumerate(next((n.outs for n in taken), ())):
            assert meta is not None
            element = self.c.unique(f"{name}_{place}")
            self.out.views.append(PlanView(element, name, f"[{place}].contiguous()"))
            self.out.metas[element] = meta
            found.append(self.c.stored(element, meta.dtype, self.c.shape(meta)))
        return tuple(found) or None

    def copy(self, name: str) -> str:
        """The plan's name of a copy of a tensor of a dtype that no kernel writes."""
        node = Node(name=f"{name}_copy", op="aten.clone.default", args=({"node": name},), outs=(self._known(name),))
        self.add(node, "")
        del self.out.library[node.name]  # no operator of the module
        return str(self.values[node.name].buffer)

    def _unbiased(self, node: Node, *, turned: bool) -> tuple[Node, Any]:
        """(the call without its bias, the bias) where a kernel adds it, else (node, None).

        That is one that reads the result, or one in place of the library's own for the bias of a convolution.

        turned: the result is channels last, so that a kernel reads it in any case.
        """
        args, op = list(node.args), node.op
        place = 0 if op in SUMMED else BIASED.get(short(op), len(args))
        absent = place >= len(args) or args[place] is None or any(m and m.dtype not in COMPUTE for m in node.outs)
        apart = turned or _adds_bias_apart(node) or feeds_kernel(self.graph, node.name)
        if absent or not self.epilogue or not apart:
            return node, None
        bias = args[place]
        if op not in SUMMED:
            args[place] = None
        elif node.kwargs or (short(op) == "addmm" and self.values[bias["node"]].rank < 2):
            return node, None  # cuBLASLt adds a vector itself
        else:
            op, args = SUMMED[op], args[1:]
        return msgspec.structs.replace(node, op=op, args=tuple(args)), bias

    def _channels_last_image(self, node: Node) -> dict[str, str]:
        """{image or weight: the plan's view of its channels-last copy} for a convolution that reads it so; else {}.

        The library would copy a weight that lies otherwise at every call; that of a parameter is made in `prepare`. The
        choice `weights_last` of the program, if False, leaves weights as they lie.
        """
        if self.state.library_only or short(node.op) not in channels_last.KINDS:
            return {}
        image, weight = (self.values[a["node"]] for a in node.args[:2])
        usual = channels_last.usual(self.c, node, image, weight, between=self._is_between_kernels(node))
        if usual is None:
            return {}
        key = f"channels_last:{node.name}"
        self.out.structure[key] = Choice(options=(False, True), default=usual)
        if not self.state.choices.get(key, usual):
            return {}
        self.out.structure[WEIGHTS_LAST] = Choice(options=(True, False), default=True)
        turned = node.args[:2] if self.state.choices.get(WEIGHTS_LAST, True) else node.args[:1]
        return {a["node"]: self._channels_last_view(a["node"]) for a in turned}

    def _is_between_kernels(self, node: Node) -> bool:
        """Whether the image of a convolution is computed by a kernel that may write it in any order, or lies channels
        last, and kernels alone read its result: then permutations take no launch of the engine's, but of the library's.
        """
        image = self.values[node.args[0]["node"]]
        return isinstance(image, Tensor) and not image.buffer and self._feeds_kernels(node)

    def _feeds_kernels(self, node: Node) -> bool:
        """Whether kernels alone read the result of a convolution with a weight that `prepare` permutes."""
        read = readers(self.graph, node.name)
        pointwise = bool(read) and all(last_products.keeps_layout(r) and short(r.op) not in VIEWS for r in read)
        return pointwise and node.name not in returned(self.graph) and node.args[1]["node"] in self.c.parameters

    def strides_over_image(self, node: Node) -> bool:
        """Whether this is a convolution of one tap that skips positions of an image that lies channels last, which the
        library reads so.
        """
        if short(node.op) not in channels_last.KINDS or self.state.library_only:
            return False
        image, weight = (self.values[a["node"]] for a in node.args[:2])
        if not isinstance(image, Tensor) or image.buffer or image.rank != 4 or image.dtype not in HALVES:
            return False
        one_tap = all(size == ONE for size in weight.shape[2:])
        usual = one_tap and channels_last.usual(self.c, node, image, weight, between=self._feeds_kernels(node))
        return bool(usual) and lies_channels_last(self.c, image, 2)

    def wants_channels_last(self, node: Node) -> bool:
        """Whether convolutions or products of rows of channels read an image as a channels-last one, directly or
        through operators that keep it so, and beside them such operators at most.
        """
        if node.name not in self._wanted:
            found = readers(self.graph, node.name)
            turned = [r for r in found if self._reads_channels_last(r, node) or self.turns_image(r)]
            rest = [reader for reader in found if reader not in turned]
            kept = node.name not in returned(self.graph) and all(last_products.keeps_layout(r) for r in rest)
            self._wanted[node.name] = kept and (bool(turned) or any(self.wants_channels_last(r) for r in rest))
        return self._wanted[node.name]

    def turns_image(self, node: Node) -> bool:
        """Whether a node is a half image with channels last, which nothing but products of its rows reads."""
        meta = node.outs[0] if node.outs else None
        if self.state.library_only or short(node.op) != "permute" or meta is None or meta.dtype not in HALVES:
            return False
        found = readers(self.graph, node.name)
        rows = bool(found) and all(short(r.op) == "linear" and r.args[0] == {"node": node.name} for r in found)
        return rows and list(node.args[1]) == channels_last.TO_CHANNELS_LAST and node.name not in returned(self.graph)

    def _reads_channels_last(self, reader: Node, node: Node) -> bool:
        """Whether a node's reader is a convolution that reads it so."""
        meta = node.outs[0]
        if meta is None or short(reader.op) not in channels_last.KINDS or reader.args[0] != {"node": node.name}:
            return False
        image, weight = Tensor(meta.dtype, self.c.shape(meta), _unknown), self.values.get(reader.args[1]["node"])
        usual = (
            channels_last.usual(self.c, reader, image, weight, between=self._feeds_kernels(reader))
            if isinstance(weight, Tensor)
            else None
        )
        return bool(self.state.choices.get(f"channels_last:{reader.name}", usual)) if usual is not None else False

    def _channels_last_view(self, name: str) -> str:
        """The plan's view of a tensor's channels-last copy, which has one, whoever reads it."""
        if name in self._turned_views:
            return self._turned_views[name]
        kept = self._channels_last_buffer(name)
        view = self.c.unique(f"{kept}_view")
        self.out.views.append(PlanView(view, kept, f".permute({', '.join(map(str, channels_last.TO_CHANNELS_FIRST))})"))
        self.out.metas[view] = self._known(name)
        self._turned_views[name] = view
        return view

    def _channels_last_buffer(self, name: str) -> str:
        """The buffer of a tensor's channels-last copy, which later operators read, too, where it is the only one."""
        if name not in self._turned:
            value = self.values[name]
            self._turned[name] = kept = channels_last.image(self.c, value, plain(name), self._buffer_shape)
            self.note_packed(kept)
            if not value.buffer:
                shape = [value.shape[k] for k in channels_last.TO_CHANNELS_LAST]
                stored = Tensor(value.dtype, shape, lambda i: self.c.arena.load(kept, flatten(shape, i), value.dtype))
                self.values[name] = permuted(self.c, stored, channels_last.TO_CHANNELS_FIRST)
        return self._turned[name]

    def note_packed(self, buffer: str) -> None:
        """Notes a stored operand that is made of parameters alone, which `prepare` computes."""
        item = next((i for i in self.c.items if i.name == buffer and i.kind == "pw"), None)
        if item is None:
            return
        read = {e.attr[0] for e in walk([item.body(self.c.probe(item.shape))]) if e.op == "load"}
        if read and read <= self.c.parameters:
            self.out.packed.add(buffer)

    def _buffer_shape(self, buffer: str) -> list[Ix]:
        """The shape of a buffer."""
        item = next((i for i in self.c.items if i.name == buffer), None)
        return list(item.shape) if item is not None else self.c.shape(self.out.metas[buffer])

    def _add_bias(self, node: Node, value: Tensor, bias: Tensor) -> Tensor:
        """The result plus the bias, which fuses into the kernel that reads the result."""
        if node.op in SUMMED:
            return self._plus(node, value, bias)
        channel = value.rank - 1 if short(node.op) == "linear" else value.rank - int(short(node.op)[-2]) - 1
        shaped = views.remap(
            self.c, bias, [s if k == channel else ONE for k, s in enumerate(value.shape)], lambda i: [i[channel]]
        )
        return self._plus(node, value, shaped)

    def _plus(self, node: Node, value: Tensor, bias: Tensor) -> Tensor:
        out = self.c.map(lambda a, b: self.c.arena.binary("+", a, b), value, bias, dtype=value.dtype, shape=value.shape)
        out.label = f"{node.name}_bias"
        return out

    def ensure(self, name: str, *, strided: bool = False) -> str:
        """The plan's name of a tensor that a library call reads; a view or a kernel is added for it if needed.

        strided: the call reads any strides as fast as contiguous rows.
        """
        value = self.values[name]
        if isinstance(value, (tuple, list)):
            raise NotLowered("a tuple as an argument")
        if value.buffer:
            return str(value.buffer)
        if name in self.nodes and self.nodes[name].op in UNDEFINED:
            self.add(self.nodes[name], "memory of undefined contents")
            return str(self.values[name].buffer)
        if name in self.nodes and self.turns_image(self.nodes[name]):
            return self._rows_of_image(name)
        view = self.views.of(name, strided=strided) or self._flattened(name, value)
        if view:
            return view
        kept = self.c.realise(value, plain(name), between=False)
        self.note_packed(kept.buffer)
        self.values[name] = kept
        self.out.metas.setdefault(kept.buffer, self._meta_of(name))
        return kept.buffer

    def _rows_of_image(self, name: str) -> str:
        """The plan's name of an image with channels last."""
        kept, value = self._channels_last_buffer(self.nodes[name].args[0]["node"]), self.values[name]
        self.out.metas.setdefault(kept, self._meta_of(name))
        self.values[name] = self.c.stored(kept, value.dtype, value.shape)
        return kept

    def _flattened(self, name: str, value: Tensor) -> str:
        """The plan's view of a value that is stored under the shape that it had before a view flattened it, where its
        kernel would divide an index in several ways (windows as rows): elements that lie together stay together. "" for
        other values.
        """
        node = self.nodes.get(name)
        if node is None or short(node.op) not in SHAPING or node.op == "aten.view.dtype":
            return ""
        source = self.values[node.args[0]["node"]]
        if (
            source.buffer
            or source.rank <= value.rank
            or not _divided_in_several_ways(value.at(self.c.probe(value.shape)))
        ):
            return ""
        kept = self.c.realise(source, plain(name), between=False)
        self.note_packed(str(kept.buffer))
        self.out.metas.setdefault(str(kept.buffer), self._meta_of(node.args[0]["node"]))
        view = self.c.unique(f"{name}_view")
        self.out.views.append(
            PlanView(view, str(kept.buffer), view_operation("reshape", [list(value.shape)], source.rank))
        )
        self.out.metas[view] = self._meta_of(name)
        stored = Tensor(value.dtype, value.shape, lambda i: kept.at(reindex(value.shape, source.shape, i)), buffer=view)
        self.values[name] = stored
        return view

    def _known(self, name: str) -> Meta:
        """The meta of an input or a node."""
        return self.out.tensors[name].meta if name in self.out.tensors else self._meta_of(name)

    def _meta_of(self, name: str) -> Meta:
        if name in self.given:  # a constant of the graph, which a kernel writes
            return self.given[name]
        meta = self.nodes[name].outs[0]
        assert meta is not None
        return meta


def _adds_bias_apart(node: Node) -> bool:
    """Whether the library adds a bias in a pass of its own: of a convolution that is not depthwise. That of 16 channels
    of 16384 took an H200 2.5 us, a kernel's 1.3.
    """
    groups = node.args[6] if len(node.args) > 6 else 1
    return short(node.op).startswith("conv") and groups == 1


def _unknown(index: Index) -> E:
    raise RuntimeError("the elements of a result that no operator has computed yet")


def _divided_in_several_ways(element: E) -> bool:
    """Whether a variable of an element's index is divided by several numbers, so that no split of it leaves none."""
    ways: dict[str, set[str]] = {}
    for p in (p for e in walk([element]) for p in indices(e)):
        for atom in p.atoms():
            if isinstance(atom, Fn):
                for variable in atom.a.atoms():
                    ways.setdefault(variable.key, set()).add(f"{atom.a.key} {atom.b.key}")
    return any(len(found) > 1 for found in ways.values())
