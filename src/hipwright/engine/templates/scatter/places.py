"""Writes into parts of a tensor in place: slices, and places that index tensors name. The rest is not touched.

A thread takes some neighbouring elements of a value and stores them where they belong. Where two elements are for one
place, either may win, as in PyTorch on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hipwright.engine.emit.statements import literal
from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import Ix, Var, divide, ix, nonneg, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.access import has_unit_stride
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.offers import Offer, Output
from hipwright.engine.templates.scatter.place_vectors import PlaceVectors, place_columns
from hipwright.float8 import FLOAT8

ITEM = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
ITEM |= dict.fromkeys(("int8", "uint8", "bool", *FLOAT8), 1)
VECTOR_BYTES = 16
MOST_WIDE = 8
"""The most elements that a thread stores: of bytes, it reads twice or four times as many bytes as it writes."""
NAMED_ABOVE = 64
"""The weight above which a place is stored first. A thread computes it once, for all its elements, and less than a
launch costs: two divisions by a page's size (32 each) for every thread of 4 MB of keys take some 0.5 us of an H100.
"""
VALUE_ABOVE = 96
"""The weight above which a value is stored before it is written to its places: each element is needed once."""


@dataclass(eq=False)
class Places:
    """One write of a value of this shape, or of one number. named: the index tensors, each with the size of the
    dimension that it indexes; at: the position in the whole tensor of (an index into the value, the named places);
    index: the index into an index tensor of an index into the value. within: {dimension of the whole tensor: the first
    place that the write may touch, and the first behind them}.
    """

    shape: list[Ix]
    named: list[tuple[Tensor, Ix]]
    at: Callable[[Sequence[Ix], Sequence[Ix]], Ix]
    index: Callable[[Sequence[Ix], Tensor], list[Ix]]
    value: Tensor | float
    within: dict[int, tuple[Ix, Ix]] = field(default_factory=dict)

    def apart(self, other: Places) -> bool:
        """Whether no element of the whole tensor is written by both, whatever the index tensors hold."""
        both = [(self.within[d], other.within[d]) for d in self.within.keys() & other.within.keys()]
        return any(nonneg(second - end) or nonneg(first - stop) for (first, end), (second, stop) in both)


def places_offer(writes: Sequence[Places], whole: list[Ix]) -> Offer:
    """An offer that writes each in turn into the one output, which lies where the tensor is."""
    operands: list[Tensor] = []
    limits: list[int] = []
    for write in writes:
        values = [write.value] if isinstance(write.value, Tensor) else []
        operands += [*(tensor for tensor, _ in write.named), *values]
        limits += [*(NAMED_ABOVE for _ in write.named), *(VALUE_ABOVE for _ in values)]
    outputs = [Output(whole)]
    return Offer(
        "places", write_places, operands, outputs, default=True, store_above=limits, whole=True, data=list(writes)
    )


def write_places(body: CallBody) -> list[EmittedKernel]:
    """One kernel for each write."""
    target = body.stored(0)
    assert target is not None
    stored = iter([operand for operand in body.operands if operand is not None])
    kernels = [_kernel(body, target, write, stored, number) for number, write in enumerate(body.data)]
    for kernel, write in zip(kernels, body.data, strict=True):
        pairs = zip(kernels, body.data, strict=True)
        kernel.apart = {other.name for other, behind in pairs if other is not kernel and write.apart(behind)}
    return kernels


def _kernel(body: CallBody, target: str, write: Places, stored: Iterator[Tensor], number: int) -> EmittedKernel:
    """The kernel of one write. stored: the operands as they are read, those of this write next."""
    named = [(next(stored), size) for _, size in write.named]
    value = next(stored) if isinstance(write.value, Tensor) else write.value
    block = body.knob("PLACES_BLOCK", 256, (64, 128, 256, 512), "threads of a block that writes into a tensor's places")
    k = body.kernel(
        f"write_{number + 1}" if number else "write", names="i j v wide i0 i1 i2 i3 i4 i5 i6 i7 at0 at1 at2 at3"
    )
    index = [ix(Var(f"i{d}", size)) for d, size in enumerate(write.shape)]
    at = [ix(Var(f"at{n}", size)) for n, (_, size) in enumerate(named)]
    position = write.at(index, at)
    width = _width(body, write, value, body.dtype(target), position)
    columns = place_columns(body, value, index, width) if isinstance(value, Tensor) and width > 1 else None
    counted = list(write.shape)
    if columns is not None:
        counted[-1] = divide(columns.size + (width - 1), ix(width))
        index[-1] = ix(Var(f"i{len(index) - 1}", columns.size))
    total = product(counted)
    k.line(f"const {k.kind} i = blockIdx.x * ({k.kind}){block} + threadIdx.x;")
    k.line(f"if (i >= {k.size(total)}) return;")
    for d, place in enumerate(unflatten(counted, ix(Var("i", total)))):
        k.line(f"const {k.kind} i{d} = {k.size(place * width if width > 1 and d == len(counted) - 1 else place)};")

    def name_places() -> None:
        for n, (tensor, size) in enumerate(named):
            k.line(f"long at{n} = {k.load(tensor, write.index(index, tensor))};")
            k.line(f"if (at{n} < 0) at{n} += {k.size(size)};")

    k.written.add(target)
    if columns is not None and isinstance(value, Tensor):
        early = [e for tensor, _ in named for e in k.early(tensor, write.index(index, tensor))]
        PlaceVectors(k, target, value, index, columns, early, name_places, lambda i: write.at(i, at)).write()
    else:
        name_places()
        dtype = body.dtype(target)
        text = k.load(value, index, dtype) if isinstance(value, Tensor) else literal(value, COMPUTE[dtype])
        k.line(f"*({k.pointer(target)} + {k.emit.position(position)}) = {text};")
    out = k.finish(f"cdiv({to_python(total)}, {block})", block, block, "written in place")
    out.touched = {target: product(write.shape)}
    return out


def _width(body: CallBody, write: Places, value: object, dtype: str, position: Ix) -> int:
    """How many neighbours a thread stores at once: as many as divide a row at capture."""
    width = min(VECTOR_BYTES // ITEM.get(dtype, VECTOR_BYTES), MOST_WIDE)
    if not isinstance(value, Tensor) or not write.shape:
        return 1
    last = body.c.hint(write.shape[-1])
    if last < 1 or not has_unit_stride(position, f"i{len(write.shape) - 1}"):
        return 1
    while width > 1 and last % width:
        width //= 2
    return width
