"""Lowers a graph to items and library calls: decides which operators become HIP and which values are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hipwright.capture.graph import Graph, Input, Node, plain, references, several, short
from hipwright.engine.ir.expr import COMPUTE, HALVES, E, walk
from hipwright.engine.ir.index import Ix, ix
from hipwright.engine.ir.operators import ATTENTION as WRITTEN
from hipwright.engine.knobs import Choice
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.partition import channels_last
from hipwright.engine.partition.attention_calls import AttentionCalls
from hipwright.engine.partition.library_calls import LibraryCalls
from hipwright.engine.partition.loops import loop_call
from hipwright.engine.partition.operators import TABLE
from hipwright.engine.partition.plan_views import ATTENTION
from hipwright.engine.partition.readers import (
    HEAVY,
    PRODUCTS,
    VIEWS,
    cropped,
    is_read_turned,
    read_by_one_pool,
    read_by_pointwise,
    read_by_products,
    reads_activation,
)
from hipwright.engine.partition.state import Lowered, LoweringState
from hipwright.engine.partition.state_updates import StateUpdates
from hipwright.engine.partition.written_places import WrittenPlaces
from hipwright.engine.rewrite.loops.records import LOOP, LoopBody
from hipwright.engine.templates.offers import KernelCall, holds_kernel_value, place, probe, reads_call_result
from hipwright.engine.templates.registry import offers_for, templates_for

TRANSPOSES = {"transpose", "permute", "t"}
WINDOWED = ("max_pool", "avg_pool", "adaptive", "im2col", "upsample", "_adaptive", "cosine_similarity")
MOST_DEPTH = 48
"""Operators that an expression may be built of before it is stored."""
WORDS = ("uint8", "int8", "int16", "int32", "int64")
MOST_UNPACKED = 16
"""The weight of unpacking bits up to which each reader does it: less than it takes to load what would be stored."""
SMALL_TRANSPOSE = 1 << 18
"""Elements up to which a launch costs more than a product's reads across rows."""


class Lowering(LoweringState):
    """Lowers one graph, node by node."""

    def __init__(self, graph: Graph, choices: Mapping[str, Any], outer: LoweringState | None = None) -> None:
        super().__init__(graph, choices, outer)
        self.depth: dict[str, int] = {}
        self.library = LibraryCalls(self)
        self.attention = AttentionCalls(self, self.library)
        self.places = WrittenPlaces(self)

    def run(self) -> Lowered:
        """Lowers every node. Raises SizeNotSupported for a size that can be neither expressed nor evaluated."""
        self._read_shapes()
        for tensor in self.graph.inputs:
            self._input(tensor)
        for node in self.graph.nodes:
            self._node(node)
        self._finish()
        self.out.items = self.c.items
        return self.out

    def _read_shapes(self) -> None:
        """Read every size first, so that derived sizes have their captured values."""
        metas = [i.meta for i in self.graph.inputs] + [m for n in self.graph.nodes for m in n.outs if m is not None]
        for meta in metas:
            for size in meta.shape:
                self.reader.read(size)
        self.reader.evaluate_derived(self.c.hints)

    # ------------------------------------------------------------ nodes

    def _input(self, tensor: Input) -> None:
        shape = self.c.shape(tensor.meta)
        if tensor.value is not None:
            self.values[tensor.name] = self._constant(tensor, shape)
            return
        self.out.tensors[tensor.name] = tensor
        self.out.metas[tensor.name] = tensor.meta
        self.c.parameters |= {tensor.name} if tensor.kind == "param" else set()
        self.values[tensor.name] = self.c.stored(tensor.name, tensor.meta.dtype, shape)

    def _constant(self, tensor: Input, shape: list[Ix]) -> Tensor:
        """A small constant, whose values are literals in the kernel."""
        flat: list[Any] = []

        def collect(value: Any) -> None:
            if isinstance(value, (list, tuple)):
                for v in value:
                    collect(v)
            else:
                flat.append(float(value["float"]) if isinstance(value, dict) else value)

        collect(tensor.value)
        kind = COMPUTE[tensor.meta.dtype]

        def at(index: Any) -> Any:
            from hipwright.engine.ir.shapes import flatten

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
        if node.name in self.places.inside or self.places.lower(node):
            return
        if node.op == LOOP:
            self._loop(node, node.kwargs["body"])
            return
        kind = short(node.op)
        if self.library_only:
            self.library.add(node, "the choice: no kernels")
            return
        foreign = self._without_kernels(node)
        if foreign:
            self.library.add(node, f"no kernel computes {foreign}")
            return
        if node.name in self.given_up:
            self.library.add(node, "given up: a program that computes it was refused")
            return
        why = self._template(node, kind) if templates_for(kind) else None
        if why == "":
            return
        if kind in HEAVY:
            calls = self.attention if kind == ATTENTION else self.library
            calls.add(node, why or "no template writes this operator yet: it is the library's")
            return
        if kind in TRANSPOSES and not self.library.turns_image(node):
            self._store_before_transpose(node.args[0]["node"], node.name)
        before, given = len(self.c.items), {name: self.values[name] for name in references(list(node.args))}
        try:
            value = self._lower(node)
        except NotLowered as why:
            self.c.rollback(before)
            self.values |= given  # some may have been stored for it
            self.library.add(node, str(why))
            return
        self.out.in_hip[node.name] = kind
        self.values[node.name] = value
        self._label(node, value)
        self._keep(node, kind, value)

    def _without_kernels(self, node: Node) -> str:
        """The dtype of an argument or result that no kernel reads or writes (complex, 8-bit floats); "" for none."""
        values = [self.values[name] for name in references([*node.args, *node.kwargs.values()])]
        flat = [v for value in values for v in (value if isinstance(value, (tuple, list)) else (value,))]
        dtypes = [v.dtype for v in flat if isinstance(v, Tensor)] + [m.dtype for m in node.outs if m is not None]
        return next((dtype for dtype in dtypes if dtype not in COMPUTE), "")

    def _loop(self, node: Node, body: LoopBody) -> None:
        """A loop of the plan, whose body is lowered as a graph of its own."""
        self.reader.symbols.add(body.step)
        self.reader.steps.add(body.step)
        inner = Lowering(body.graph, self.choices, self).run()
        call = loop_call(self, node, body, inner, self.library.ensure)
        values: list[Tensor] = []
        for name, meta in zip((*body.last, *body.collected), node.outs, strict=True):
            assert meta is not None
            call.outputs.append(self.c.unique(f"{name}_{'last' if len(values) < len(body.last) else 'all'}"))
            self.out.metas[call.outputs[-1]] = meta
            values.append(self.c.stored(call.outputs[-1], meta.dtype, self.c.shape(meta)))
        self.values[node.name] = tuple(values)

    def _template(self, node: Node, kind: str) -> str:
        """Let a call template write the node. Returns "" if one does, else the reason."""
        call = KernelCall(
            cropped(self.graph, node, kind),
            kind,
            self.c,
            self.resolve(list(node.args)),
            {k: self.resolve(v) for k, v in node.kwargs.items()},
            self.choices,
            read_by_pointwise(self.graph, node.name),
            self._wanted_last(node, kind),
            kind in PRODUCTS and reads_activation(self.graph, node),
        )
        offers, why = offers_for(call)
        if not offers:
            return why or "no template writes this form of it"
        fallback = "library" if kind in HEAVY or node.op not in TABLE else "generic"
        default = next((o.name for o in offers if o.default), fallback)
        default = fallback if self.library.strides_over_image(node) else default
        options = tuple(o.name for o in offers)
        written = self.attention.written(node) if kind == WRITTEN else None
        if node.op.startswith("hip."):  # the engine's own operators have templates, most of them only
            default = default if default in options else options[0]
            options = (*options, *(["library"] if written else []))
        else:
            options = (fallback, *options)
        if len(options) > 1:
            self.out.structure[f"call:{node.name}"] = Choice(options=options, default=default)
        chosen = self.choices.get(f"call:{node.name}", default)
        chosen = chosen if chosen in options else default
        offer = next((o for o in offers if o.name == chosen), None)
        if offer is None and written:
            written(f"call:{node.name} is library")
            return ""
        if offer is None:
            return f"call:{node.name} is {fallback}" + (": by the static rule" if default == fallback else "")
        for buffer in offer.packed:
            self.library.note_packed(buffer)
        _, value = place(call, offer)
        self.out.in_hip[node.name] = kind
        self.values[node.name] = value
        self._label(node, value)
        self._keep(node, kind, value)
        return ""

    def _wanted_last(self, node: Node, kind: str) -> bool:
        """Whether readers want the image that a pooling or convolution gives channels last."""
        if "pool2d" not in kind and kind != "conv2d":
            return False
        return self.library.wants_channels_last(node) or is_read_turned(self.graph, node)

    def _lower(self, node: Node) -> Any:
        handler = TABLE.get(node.op)
        if handler is None:
            raise NotLowered("no template writes this operator yet")
        metas = list(node.outs)
        meta: Any = metas if several(node) else metas[0]
        if short(node.op).startswith(WINDOWED):
            self._realise_arguments(node)
        try:
            return handler(
                self.c, meta, *self.resolve(list(node.args)), **{k: self.resolve(v) for k, v in node.kwargs.items()}
            )
        except (TypeError, KeyError, IndexError, AttributeError, StopIteration) as problem:
            raise NotLowered(f"arguments not foreseen ({type(problem).__name__}: {problem})") from problem

    def _store_before_transpose(self, name: str, transpose: str) -> None:
        """Store a value computed from a template's result before it is transposed: it is fused into the epilogue.

        A small value computed from a reduction is stored too if products read the transpose: one launch instead of two.
        """
        value = self.values[name]
        if isinstance(value, Tensor) and not value.buffer:
            element = probe(self.c, value)
            if element.op == "load" or holds_kernel_value(element):
                return
            reduced = self._reduced(element, value) and read_by_products(self.graph, transpose)
            if reads_call_result(self.c, element) or reduced:
                self.values[name] = self.c.realise(value, plain(name))

    def _reduced(self, element: E, value: Tensor) -> bool:
        """Whether a value is small and reads the result of a reduction or scan."""
        rows = {i.name for i in self.c.items if i.kind not in ("pw", "call")}
        small = self.c.numel_hint(value.shape) <= SMALL_TRANSPOSE
        return small and any(e.op == "load" and e.attr[0] in rows for e in walk([element]))

    def _realise_arguments(self, node: Node) -> None:
        """Store the arguments of a window operator that are costly: it reads each element several times. The mean of
        whole planes does not.
        """
        if _is_mean(node):
            return
        for name in references(list(node.args)):
            value = self.values[name]
            if isinstance(value, Tensor) and not value.buffer and self.element_weight(value) > 8:
                self.values[name] = self.c.realise(value, name)

    def _label(self, node: Node, value: Any) -> None:
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(one, Tensor) and not one.buffer and not one.label:
                one.label = plain(node.name)

    def _keep(self, node: Node, kind: str, value: Any) -> None:
        """Store a value that several consumers would recompute, or whose expression is deep. A pooling's kernel
        computes once what all of them make of it.
        """
        depth = 1 + max((self.depth.get(name, 0) for name in references(list(node.args))), default=0)
        self.depth[node.name] = depth
        if not isinstance(value, Tensor) or value.buffer or kind in VIEWS or node.name in self.places.indices:
            return
        shared = self.reader_counts.get(node.name, 0) > 1 and self.element_weight(value) > 4
        shared = shared and not read_by_one_pool(self.graph, node.name)
        if (shared and not self._bits(value)) or depth > MOST_DEPTH:
            if holds_kernel_value(probe(self.c, value)):
                return
            turned = value.rank == 4 and value.dtype in HALVES and self.library.wants_channels_last(node)
            name = plain(node.name)
            self.values[node.name] = (
                channels_last.stored(self.c, value, name, between=False) if turned else self.c.realise(value, name)
            )
            self.depth[node.name] = 0

    def _bits(self, value: Tensor) -> bool:
        """Whether a value is a few bits of an integer that several elements share: who reads it unpacks it."""
        element = probe(self.c, value)
        loads = [e for e in walk([element]) if e.op == "load"]
        if element.op != "bin" or element.attr != "&" or element.args[1].op != "const" or len(loads) != 1:
            return False
        buffer, _, dtype = loads[0].attr
        packed = self.out.metas.get(buffer)
        if not self.c.bit_ranks or packed is None or dtype not in WORDS or self.element_weight(value) > MOST_UNPACKED:
            return False
        return 2 * self.c.numel_hint(self.c.shape(packed)) <= self.c.numel_hint(value.shape)

    # ------------------------------------------------------------ outputs

    def _finish(self) -> None:
        written = {m.node for m in self.graph.mutations if not m.access.startswith("self.")}
        returned: set[str] = set()
        for name in references(self.graph.output):
            if name not in self.out.outputs and name not in written:
                self.out.outputs[name] = self._output(name, returned)
                returned.add(self.out.outputs[name])
        StateUpdates(self).add()
        self.out.outputs |= {name: self.out.written[name] for name in references(self.graph.output) if name in written}

    def _output(self, name: str, returned: set[str]) -> str:
        value = self.values[name]
        self.c.origin = plain(name)
        mine = isinstance(value, Tensor) and value.buffer and value.buffer not in self.out.tensors
        if mine and value.buffer not in returned:
            return str(value.buffer)
        if value.dtype not in COMPUTE:
            return self.library.copy(name)
        fresh = self.c.tensor(value.dtype, value.shape, value.at)
        kept = self.c.realise(fresh, plain(name), between=False)
        return kept.buffer


def _is_mean(node: Node) -> bool:
    """Whether adaptive pooling is the mean of whole planes."""
    kind, out = short(node.op).removeprefix("_"), node.outs[0]
    return kind.startswith("adaptive_avg") and out is not None and all(s == 1 for s in out.shape[-int(kind[-2]) :])
