"""Call templates: a heavy operator (product, convolution, attention, recurrent layer, top-k, ...) written in HIP.

A template is one function and one line of the registry (registry.py). It looks at a call and makes an offer, or none:

    def product(call: KernelCall) -> Offer | None:
        a, b = call.args[0], call.args[1]                   # Tensors: functions from an index to an expression
        if a.dtype not in ("float32", "float16"):
            return None                                     # stays a library call; raise NotLowered("why") to say why
        m, n = call.shape(0)
        return Offer("tile", write, operands=[a, b], outputs=[Output([m, n])], default=small(call))

    def write(body: CallBody) -> list[EmittedKernel]: ...   # runs later, when it is known what is stored and fused

**What may be chosen.** `space(graph)` has `call:<node>` with the options ("library", *names of the offers), or
"generic" where the engine's own lowering writes the operator too. `Offer.default` decides: a static rule, documented
with the template. Further structure: `body.choose(key, options, default)`, under `call:<node>:<key>`. Numbers:
`body.knob(...)`.

**Operands** are read in place (prologue): a cast, scale, transpose or gather costs no kernel. One that costs more
than `Offer.store_above` to compute, or is computed from another template's result, is stored first and then has a
`.buffer`. `write` finds them in `body.operands`, in the offer's order.

**Outputs.** An output's `space` is what the template walks, any regrouping of its shape in row-major order (a linear
layer of a 3-d input walks (rows, columns)). Its element is opaque to the scheduler; pointwise operators over the same
space that read it at the same position fuse behind it, and `write` emits them with `kernel.epilogue(value, index)`,
which is also what stores the output itself. `whole=True`: several outputs or kernels with no epilogue; then `write`
stores every output itself with `kernel.store(number, position, value)`.

**finish** maps the stored tensors to the node's value by pointwise operators (a bias, alpha and beta): they fuse as any
others do. The writer's interface, CallBody and CallKernel, is in engine/templates (call.py, call_kernel.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hipwright.capture.graph import Meta, Node
from hipwright.engine.ir.expr import walk, weight
from hipwright.engine.ir.index import Ix, ix
from hipwright.engine.ir.shapes import reindex
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, LoweredItem, NotLowered, Tensor

if TYPE_CHECKING:
    from hipwright.engine.ir.expr import E
    from hipwright.engine.templates.base import EmittedKernel
    from hipwright.engine.templates.call import CallBody

STORE_ABOVE = 16
"""The weight (ir/expr.py) of an element above which an operand is computed once and stored."""


@dataclass(eq=False)
class Output:
    """One output: the space the template walks; dtype and shape are the node's unless given."""

    space: list[Ix]
    dtype: str = ""
    shape: list[Ix] = field(default_factory=list)


@dataclass(eq=False)
class Offer:
    """A template's offer to write a call. outputs: one per output of the node, in order, None for an unused one."""

    name: str
    write: Callable[[CallBody], Sequence[EmittedKernel]]
    operands: Sequence[Tensor | None]
    outputs: Sequence[Output | None]
    default: bool = False
    finish: Callable[..., Any] | None = None
    suffix: str = "product"  # of the name of what `finish` maps
    whole: bool = False
    row_dim: int | None = None  # of the output's space: reductions of it may be begun by `write` (fuse/row_tiles.py)
    row_whole: bool | None = None  # of all columns of a row at once: by default or not; None where it cannot
    row_least: int = 0  # the fewest elements of it, at capture, from which that is done
    store_above: int | Sequence[int] = STORE_ABOVE  # of all operands, or of each
    stored_order: Sequence[int] = ()  # the order of dimensions in which operands are stored, if not their own
    data: Any = None  # the template's own; body.data
    packed: Sequence[str] = ()  # stored operands that `prepare` computes where they are made of parameters alone


@dataclass(eq=False)
class KernelCall:
    """What a template sees of a node: args and kwargs with Tensors, numbers and sizes (Ix) for references."""

    node: Node
    kind: str
    c: LoweringContext
    args: list[Any]
    kwargs: dict[str, Any]
    choices: Mapping[str, Any] = field(default_factory=dict)
    read_by_pointwise: bool = False  # a pointwise operator reads the result, which may be fused into the epilogue
    wanted_last: bool = False  # convolutions read the result as a channels-last image
    reads_activation: bool = False  # an operand is what pointwise operators make of another product's result

    @property
    def outs(self) -> tuple[Meta | None, ...]:
        """The node's outputs."""
        return self.node.outs

    def arg(self, place: int, name: str = "", default: Any = None) -> Any:
        """An argument by place or keyword."""
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name, default)

    def shape(self, number: int) -> list[Ix]:
        """The shape of an output. Raises NotLowered when it is absent."""
        meta = self.outs[number]
        if meta is None:
            raise NotLowered("an output is not used")
        return self.c.shape(meta)

    def hints(self, shape: Sequence[Ix]) -> list[int]:
        """The sizes at capture."""
        return [self.c.hint(s) for s in shape]


@dataclass(eq=False)
class Placed:
    """A chosen offer: its items share it. operands: as the writer will read them."""

    call: KernelCall
    offer: Offer
    operands: list[Tensor | None]
    items: list[LoweredItem | None] = field(default_factory=list)

    def elements(self) -> list[E]:
        """One expression per operand, over variables of its own: what the kernels read."""
        return [probe(self.call.c, t) for t in self.operands if t is not None]

    @property
    def reads(self) -> set[str]:
        """The buffers that its kernels read."""
        return {e.attr[0] for e in walk(self.elements()) if e.op == "load"}


def place(call: KernelCall, offer: Offer) -> tuple[Placed, Any]:
    """Make the items of a chosen offer: (the placed call, the node's value)."""
    c = call.c
    limits = offer.store_above
    limits = [limits] * len(offer.operands) if isinstance(limits, int) else limits
    operands = [
        stored_if_costly(c, t, limit, offer.stored_order) for t, limit in zip(offer.operands, limits, strict=True)
    ]
    placed = Placed(call, offer, operands)
    values: list[Tensor | None] = []
    many = len(offer.outputs) > 1
    for number, output in enumerate(offer.outputs):
        if output is None:
            placed.items.append(None)
            values.append(None)
            continue
        meta = call.outs[number] if number < len(call.outs) else None
        dtype = output.dtype or (meta.dtype if meta else "float32")
        shape = output.shape or (c.shape(meta) if meta else list(output.space))
        title = f"{call.node.name}_{number}" if many else call.node.name
        name = c.unique(f"{title}_{offer.suffix}" if offer.finish else title)
        item = LoweredItem(name, "call", dtype, list(output.space), _opaque, node=c.origin, result=shape, placed=placed)
        c.items.append(item)
        placed.items.append(item)
        values.append(c.stored(name, dtype, shape))
    value: Any = offer.finish(*values) if offer.finish else (tuple(values) if many else values[0])
    return placed, value


def _opaque(index: Index) -> E:
    raise RuntimeError("the element of a call is known to its template only")


def stored_if_costly(
    c: LoweringContext, tensor: Tensor | None, store_above: int = STORE_ABOVE, order: Sequence[int] = ()
) -> Tensor | None:
    """An operand as the kernels read it: stored if it is costly to compute or computed from a template's result. order:
    of its dimensions in memory, if not their own.

    What is computed from an attention score, which is never stored (templates/attention/scores.py), stays a function.
    """
    if tensor is None or tensor.buffer:
        return tensor
    element = tensor.at(c.probe(tensor.shape))
    if element.op == "load" or holds_kernel_value(element):
        return tensor
    if weight([element]) > store_above or reads_call_result(c, element):
        key = (tensor.dtype, tuple(s.key for s in tensor.shape), element.id)
        if key not in c.stored_operands:
            name = tensor.label or element.label or f"{c.origin}_operand"
            stored = c.realise(permuted(c, tensor, order) if order else tensor, name)
            back = [list(order).index(k) for k in range(len(order))]
            c.stored_operands[key] = permuted(c, stored, back) if order else stored
        return c.stored_operands[key]
    return tensor


def holds_kernel_value(element: E) -> bool:
    """Whether an expression holds a value that exists in a template's kernel only."""
    return any(e.op == "row" for e in walk([element]))


def reads_call_result(c: LoweringContext, element: E) -> bool:
    """Whether the value is computed from a template's result, so that the epilogue may hold it."""
    made = {i.name for i in c.items if i.kind == "call"}
    return any(e.op == "load" and e.attr[0] in made for e in walk([element]))


# ---------------------------------------------------------------- operands


def probe(c: LoweringContext, tensor: Tensor) -> E:
    """The tensor's element at variables of its own."""
    return tensor.at([ix(c.arena.var("p", s)) for s in tensor.shape])


def regroup(c: LoweringContext, tensor: Tensor, shape: Sequence[Ix]) -> Tensor:
    """The tensor under another shape of as many elements, row-major: what `view` does."""
    if tensor.buffer:
        return c.stored(tensor.buffer, tensor.dtype, shape)
    sizes = list(shape)
    return c.tensor(tensor.dtype, sizes, lambda i: tensor.at(reindex(sizes, tensor.shape, i)))


def permuted(c: LoweringContext, tensor: Tensor, order: Sequence[int]) -> Tensor:
    """The tensor with its dimensions in another order (result dimension k is `order[k]`)."""

    def at(index: Index) -> E:
        source: list[Ix] = [ix(0)] * tensor.rank
        for k, i in zip(order, index, strict=True):
            source[k] = i
        return tensor.at(source)

    return c.tensor(tensor.dtype, [tensor.shape[k] for k in order], at)


__all__ = [
    "Index",
    "KernelCall",
    "NotLowered",
    "Offer",
    "Output",
    "Placed",
    "holds_kernel_value",
    "permuted",
    "place",
    "probe",
    "reads_call_result",
    "regroup",
    "stored_if_costly",
]
