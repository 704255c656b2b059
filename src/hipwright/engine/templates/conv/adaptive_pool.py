"""Adaptive average pooling of small planes whose windows depend on sizes that are only known at run time.

The rows of a window are a few elements each, and a wave that reads them one by one touches a cache line for every row
of every window. So a block loads several whole planes with vectorised loads, all at once, keeps them in LDS, and sums
the windows there. Planes that do not fit are read from memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE, STORAGE
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.lower.windows.pool_windows import LONGEST_WALK
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
MAX_LDS_BYTES = 16384
"""Bytes of planes in LDS: with eight blocks on a multiprocessor 128 KiB of loads are under way; four blocks fit 64 KiB
of LDS.
"""
MIN_ELEMENTS = 1 << 20  # from which memory dominates the launch
MAX_PLANES = 64
NAMES = """first_plane plane_count plane_size total base step tile plane lds_planes output index source acc p
k0 k1 k2 k3 i0 i1 i2 i3 end0 end1 end2 begin0 begin1 begin2"""


@dataclass(eq=False)
class PooledPlanes:
    """lead: number of planes; sizes, shape: of a plane and of its result."""

    lead: Ix
    sizes: list[Ix]
    shape: list[Ix]

    @property
    def elements(self) -> Ix:
        """Elements of a plane."""
        return product(self.sizes)

    @property
    def space(self) -> list[Ix]:
        """The space that the template walks."""
        return [self.lead, *self.shape]


def adaptive(call: KernelCall) -> Offer | None:
    """The default for planes of at most MAX_LDS_BYTES where windows are no stencil: unknown or uneven sizes."""
    x: Tensor = call.args[0]
    n = int(call.kind[-2])
    shape = call.shape(0)[-n:]
    if x.dtype not in BYTES:
        raise NotLowered(f"pooling of {x.dtype}")
    if all(s.value == 1 for s in shape):
        raise NotLowered("a reduction of whole rows")
    a = PooledPlanes(product(x.shape[:-n]), x.shape[-n:], shape)
    elements = call.c.hint(a.elements)
    if not 0 < elements * BYTES[x.dtype] <= MAX_LDS_BYTES:
        raise NotLowered("planes that do not fit")
    even = all(s.value and t.value and s.value % t.value == 0 for s, t in zip(a.sizes, shape, strict=True))
    windows = call.c.hint(product(shape))
    default = not even and call.c.hint(a.lead) * elements >= MIN_ELEMENTS and elements <= LONGEST_WALK * windows
    return Offer(
        "planes", write, [regroup(call.c, x, [a.lead * a.elements])], [Output(a.space)], default=default, data=a
    )


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    a: PooledPlanes = body.data
    (x,) = body.operands
    assert x is not None
    most = MAX_LDS_BYTES // BYTES[x.dtype]
    planes = _planes(most // body.hint(a.elements))
    block = body.knob("POOL_BLOCK", 256, (64, 128, 256, 512), "threads of a block that pools planes in LDS")
    k = body.kernel(names=NAMES)
    k.line(f"alignas(16) __shared__ {STORAGE[x.dtype]} lds_planes[{most}];")
    k.line(f"const {k.kind} plane_size = {k.size(a.elements)}, first_plane = blockIdx.x * ({k.kind}){planes};")
    left = f"{k.size(a.lead)} - first_plane"
    k.line(f"const int plane_count = {left} < {planes} ? {left} : {planes};")
    k.open(f"if (plane_size * {planes} <= {most})")
    _load_planes(k, x, most, block)
    k.line("__syncthreads();")
    _emit_outputs(k, a, x, block, "lds_planes")
    k.emit.otherwise()
    _emit_outputs(k, a, x, block, "")
    k.close()
    return [k.finish(f"cdiv({to_python(a.lead)}, {planes})", block, block, f"{planes} planes a block in LDS")]


def _planes(fit: int) -> int:
    """Planes of a block: a number that aligns the first of them to a vector, if there is one."""
    fit = min(max(fit, 1), MAX_PLANES)
    return next((fit // p * p for p in (8, 4, 2) if fit >= p), 1)


def _load_planes(k: CallKernel, x: Tensor, most: int, block: str) -> None:
    """Copies the planes of the block to LDS: a thread issues all its loads before the first store."""
    vec = 16 // BYTES[x.dtype]
    k.line(f"const {k.kind} total = plane_count * plane_size;")
    if not x.buffer:
        k.open(f"for ({k.kind} index = threadIdx.x; index < total; index += {block})")
        k.line(f"const {k.kind} source = first_plane * plane_size + index;")
        k.line(f"lds_planes[index] = {k.load(x, ['source'], x.dtype)};")
        k.close()
        return
    k.use("Tile", "load_tile", "store_tile")
    shape = f"({most} + {block} * {vec} - 1) / ({block} * {vec}), {vec}"
    k.line(f"const {k.kind} base = ({k.kind})threadIdx.x * {vec}, step = {block} * {vec};")
    k.line(
        f"const auto tile = load_tile<{shape}>({k.pointer(x.buffer)} + first_plane * plane_size, base, step, total);"
    )
    k.line(f"store_tile<{shape}>(lds_planes, base, step, total, tile);")


def _emit_outputs(k: CallKernel, a: PooledPlanes, x: Tensor, block: str, source: str) -> None:
    """The results of the block, contiguous in memory; source: the array of the planes, or "" for memory."""
    kind, results = COMPUTE[x.dtype], product(a.shape)
    k.open(f"for (int output = threadIdx.x; output < plane_count * {k.size(results)}; output += {block})")
    k.line(f"const {k.kind} p = first_plane + output / {k.size(results)};")
    index: list[Ix] = [ix(Var("p", a.lead))]
    for d, place in enumerate(unflatten([a.lead, *a.shape], ix(Var("output", a.lead * results)))[1:]):
        k.line(f"const int i{d} = {k.size(place)};")
        index.append(ix(Var(f"i{d}", a.shape[d])))
        _declare_window(k, d, k.size(a.sizes[d]), k.size(a.shape[d]))
    k.line(f"{kind} acc = 0;")
    for d in range(len(a.shape)):
        k.open(f"for (int k{d} = begin{d}; k{d} < end{d}; ++k{d})")
    within = flatten(a.sizes, [ix(Var(f"k{d}", s)) for d, s in enumerate(a.sizes)])
    value = f"({kind})lds_planes[(p - first_plane) * plane_size + {k.size(within)}]"
    if not source:
        k.line(f"const {k.kind} source = p * plane_size + {k.size(within)};")
        value = k.load(x, ["source"])
    k.line(f"acc += {value};")
    for _ in a.shape:
        k.close()
    k.line(f"acc /= ({kind})({' * '.join(f'(end{d} - begin{d})' for d in range(len(a.shape)))});")
    k.epilogue("acc", index)
    k.close()


def _declare_window(k: CallKernel, d: int, size: str, out: str) -> None:
    """Declares where a window begins and ends; of sizes that divide, its length is known when compiling."""
    k.line(f"const int begin{d} = (long)i{d} * {size} / {out};")
    after = f"((long)(i{d} + 1) * {size} + {out} - 1) / {out}"
    k.line(f"const int end{d} = {size} % {out} == 0 ? begin{d} + {size} / {out} : {after};")
