"""Adaptive averages of small planes, whose windows depend on sizes that are known at run time only.

A window's rows are a few elements each, and a wave that reads them one by one touches a line of memory for every row of
every window. So a block asks for several whole planes in packs, side by side and all at once, keeps them in LDS, and
sums the windows there. Planes that do not fit are read where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE, STORAGE
from hipwright.engine.ir.index import Ix, Var, ix, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.core import NotLowered, Tensor
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
STAGED = 16384
"""Bytes of planes in LDS: with eight blocks on a multiprocessor 128 KiB are under way; four fit 64 KiB of LDS."""
ENOUGH = 1 << 20  # elements from which memory counts rather than the launch
MOST_PLANES = 64
NAMES = "first planes n total base step tile plane staged o at from acc p k0 k1 k2 k3 i0 i1 i2 i3 e0 e1 e2 w0 w1 w2"


@dataclass(eq=False)
class Planes:
    """lead: how many planes; sizes, shape: of the plane and of its result."""

    lead: Ix
    sizes: list[Ix]
    shape: list[Ix]

    @property
    def elements(self) -> Ix:
        """Elements of a plane."""
        return product(self.sizes)

    @property
    def space(self) -> list[Ix]:
        """What the template walks."""
        return [self.lead, *self.shape]


def adaptive(call: KernelCall) -> Offer | None:
    """The default for planes of at most STAGED bytes where windows are no stencil: unknown or uneven sizes."""
    x: Tensor = call.args[0]
    n = int(call.kind[-2])
    shape = call.shape(0)[-n:]
    if x.dtype not in BYTES:
        raise NotLowered(f"pooling of {x.dtype}")
    if all(s.value == 1 for s in shape):
        raise NotLowered("a reduction of whole rows")
    a = Planes(product(x.shape[:-n]), x.shape[-n:], shape)
    elements = call.c.hint(a.elements)
    if not 0 < elements * BYTES[x.dtype] <= STAGED:
        raise NotLowered("planes that do not fit")
    even = all(s.value and t.value and s.value % t.value == 0 for s, t in zip(a.sizes, shape, strict=True))
    default = not even and call.c.hint(a.lead) * elements >= ENOUGH
    return Offer(
        "planes", write, [regroup(call.c, x, [a.lead * a.elements])], [Output(a.space)], default=default, data=a
    )


def write(body: CallBody) -> list[EmittedKernel]:
    """One kernel."""
    a: Planes = body.data
    (x,) = body.operands
    assert x is not None
    most = STAGED // BYTES[x.dtype]
    planes = _planes(most // body.hint(a.elements))
    block = body.knob("POOL_BLOCK", 256, (64, 128, 256, 512), "threads of a block that pools planes in LDS")
    k = body.kernel(names=NAMES)
    k.line(f"alignas(16) __shared__ {STORAGE[x.dtype]} staged[{most}];")
    k.line(f"const {k.kind} n = {k.size(a.elements)}, first = blockIdx.x * ({k.kind}){planes};")
    k.line(f"const int planes = {k.size(a.lead)} - first < {planes} ? {k.size(a.lead)} - first : {planes};")
    k.open(f"if (n * {planes} <= {most})")
    _stage(k, x, most, block)
    k.line("__syncthreads();")
    _outputs(k, a, x, block, "staged")
    k.emit.otherwise()
    _outputs(k, a, x, block, "")
    k.close()
    return [k.finish(f"cdiv({to_python(a.lead)}, {planes})", block, block, f"{planes} planes a block in LDS")]


def _planes(fit: int) -> int:
    """How many a block has: a number that keeps the first of them on the border of a pack, if there is one."""
    fit = min(max(fit, 1), MOST_PLANES)
    return next((fit // p * p for p in (8, 4, 2) if fit >= p), 1)


def _stage(k: CallKernel, x: Tensor, most: int, block: str) -> None:
    """The block's planes, as they lie, to LDS: all of a thread's packs are asked for before it keeps the first."""
    vec = 16 // BYTES[x.dtype]
    k.line(f"const {k.kind} total = planes * n;")
    if not x.buffer:
        k.open(f"for ({k.kind} at = threadIdx.x; at < total; at += {block})")
        k.line(f"const {k.kind} from = first * n + at;")
        k.line(f"staged[at] = {k.load(x, ['from'], x.dtype)};")
        k.close()
        return
    k.helper("Tile", "load_tile", "store_tile")
    shape = f"({most} + {block} * {vec} - 1) / ({block} * {vec}), {vec}"
    k.line(f"const {k.kind} base = ({k.kind})threadIdx.x * {vec}, step = {block} * {vec};")
    k.line(f"const auto tile = load_tile<{shape}>({k.pointer(x.buffer)} + first * n, base, step, total);")
    k.line(f"store_tile<{shape}>(staged, base, step, total, tile);")


def _outputs(k: CallKernel, a: Planes, x: Tensor, block: str, source: str) -> None:
    """The block's results, side by side in memory; source: where the planes are, or "" for memory."""
    kind, results = COMPUTE[x.dtype], product(a.shape)
    k.open(f"for (int o = threadIdx.x; o < planes * {k.size(results)}; o += {block})")
    k.line(f"const {k.kind} p = first + o / {k.size(results)};")
    index: list[Ix] = [ix(Var("p", a.lead))]
    for d, place in enumerate(unflatten([a.lead, *a.shape], ix(Var("o", a.lead * results)))[1:]):
        k.line(f"const int i{d} = {k.size(place)};")
        index.append(ix(Var(f"i{d}", a.shape[d])))
        _window(k, d, k.size(a.sizes[d]), k.size(a.shape[d]))
    k.line(f"{kind} acc = 0;")
    for d in range(len(a.shape)):
        k.open(f"for (int k{d} = w{d}; k{d} < e{d}; ++k{d})")
    within = flatten(a.sizes, [ix(Var(f"k{d}", s)) for d, s in enumerate(a.sizes)])
    value = f"({kind})staged[(p - first) * n + {k.size(within)}]"
    if not source:
        k.line(f"const {k.kind} from = p * n + {k.size(within)};")
        value = k.load(x, ["from"])
    k.line(f"acc += {value};")
    for _ in a.shape:
        k.close()
    k.line(f"acc /= ({kind})({' * '.join(f'(e{d} - w{d})' for d in range(len(a.shape)))});")
    k.epilogue("acc", index)
    k.close()


def _window(k: CallKernel, d: int, size: str, out: str) -> None:
    """Where a window begins and ends; of sizes that divide, its length is known when compiling."""
    k.line(f"const int w{d} = (long)i{d} * {size} / {out};")
    after = f"((long)(i{d} + 1) * {size} + {out} - 1) / {out}"
    k.line(f"const int e{d} = {size} % {out} == 0 ? w{d} + {size} / {out} : {after};")
