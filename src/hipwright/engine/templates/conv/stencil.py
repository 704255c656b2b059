"""Stencils: every output combines a small window of the input, as in depthwise and direct convolution and pooling.

A thread computes a tile of neighbours: T output channels, U rows and V columns. It sweeps over the input rows of its
tile; the span of a row is loaded once into registers, by 16-byte loads where rows are aligned, and serves every output
of the tile that reads it: the register blocking of stencil compilers (Zhao et al., "Delivering performance-portable
stencil computations", SC 2018). A transposed convolution is written in its gather form: a tile holds every phase of the
stride, so that which tap meets which input is known when compiling, and nothing is added atomically.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hipwright.engine.ir.index import ONE, Ix, ix, product
from hipwright.engine.lower.conv import ConvAxis

SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
MAX_PRODUCTS, MAX_SUMS, MAX_WEIGHTS, MAX_SPAN = 1024, 64, 64, 64
WIDE_PRODUCTS, WIDE_SUMS = 32 * 49, 32
"""Products and sums of a tile of weighted half types; search may use them for others: 32 outputs of a 7 x 7 window
share its weights instead of 16. 72 instructions an output on sm_90 instead of 89 (bfloat16), and 233 us on an H200
instead of 252.
"""
MIN_THREADS = 1 << 17
"""Threads below which a smaller tile is better than more reuse: an H200 holds 270,000."""
MIXED_CHANNELS = 4
"""Channels above which the sum over those of one element is a loop whose loads are issued some steps ahead."""

Index = Sequence[Ix]


@dataclass(eq=False)
class Stencil:
    """What is combined. axes: the spatial ones, at least two; lead: the sizes of the output before them.

    source(lead, c, place): the index in operand 0; weights(lead, t, c, taps): in operand 1, for output channel lead[-1]
    + t, where `share` neighbouring channels read the same inputs. count: divide by the size of the window, either its
    part "inside" the input or including the "padded" border. positions: also store where the maximum is. channels_last:
    neighbours in the input's memory are neighbours along lead[-1]. whole: every window lies inside the input.
    stored_last: the output is stored with lead[-1] as its last dimension.
    """

    axes: list[ConvAxis]
    lead: list[Ix]
    source: Callable[[Index, Ix, Index], list[Ix]]
    weights: Callable[[Index, Ix, Ix, Index], list[Ix]] | None = None
    combine: str = "sum"
    channels: int = 1
    share: int = 1
    scale: float = 1.0
    count: str = ""
    positions: bool = False
    channels_last: bool = False
    whole: bool = False
    stored_last: bool = False

    @property
    def space(self) -> list[Ix]:
        """The output's shape as it is stored."""
        return self.index(self.lead, [a.out for a in self.axes])

    def index(self, lead: Index, places: Index) -> list[Ix]:
        """The index in the output of places along the axes."""
        return [*lead[:-1], *places, lead[-1]] if self.stored_last else [*lead, *places]


@dataclass(frozen=True)
class Tile:
    """Neighbours a thread computes: output channels, rows, columns."""

    t: int
    u: int
    v: int

    def __str__(self) -> str:
        return f"{self.t}x{self.u}x{self.v}"


def tiles(s: Stencil, *, wide: bool = True) -> list[Tile]:
    """The tiles that fit in registers when everything is unrolled. wide: including those that no default rule takes."""
    y, x = s.axes[-2:]
    most = 8 if s.combine == "sum" else 4
    sizes = [[a.stride * m for m in (1, 2, 4)] if a.transposed else [1, 2, 4, most] for a in (y, x)]
    rows = [1] if y.out == ONE else sorted(set(sizes[0]))
    channels = [n for n in (1, 2, 4, 8) if s.share % n == 0]
    return [
        tile
        for tile in itertools.starmap(Tile, itertools.product(channels, rows, sorted(set(sizes[1]))))
        if _fits(s, tile, wide)
    ]


def mixes_channels(s: Stencil) -> bool:
    """Whether each result is a sum over the channels of one element, of one group of several."""
    grouped = s.weights is not None and s.share > 1 and s.lead[-1] != ix(s.share)
    return grouped and s.channels > MIXED_CHANNELS and all(a.kernel == 1 for a in s.axes)


def _fits(s: Stencil, tile: Tile, wide: bool) -> bool:
    y, x = s.axes[-2:]
    phases = y.stride * x.stride if y.transposed else 1
    sums = tile.t * tile.u * tile.v
    if not (y.legal(tile.u) and x.legal(tile.v)) or sums > MAX_SUMS or x.span(tile.v) > MAX_SPAN:
        return False
    if streams_weights(s, tile):
        return tile.u == 1 and not y.transposed and tile.t * tile.v * x.kernel <= MAX_PRODUCTS // 4
    most = WIDE_PRODUCTS if wide and sums <= WIDE_SUMS else MAX_PRODUCTS
    return sums * y.kernel * x.kernel // phases <= most


def streams_weights(s: Stencil, tile: Tile) -> bool:
    """Whether there are too many weights for registers, or too much to unroll: one row of taps at a time."""
    y, x = s.axes[-2:]
    weights = tile.t * y.kernel * x.kernel
    return (
        not y.transposed
        and tile.u == 1
        and ((s.weights is not None and weights > MAX_WEIGHTS) or weights * tile.v > MAX_PRODUCTS // 2)
    )


def default_tile(s: Stencil, hint: Callable[[Ix], int], dtype: str) -> Tile:
    """The static rule: 16 bytes of a row a thread, four rows where rows are shared, fewer when threads would be few.

    A sum of half types is mostly conversions: a wide tile shares them, and the weights, among its outputs.
    """
    y, x = s.axes[-2:]
    halves = s.weights is not None and SIZES.get(dtype, 4) == 2
    options = tiles(s, wide=halves)
    shared = x.transposed or (s.weights is not None and x.kernel > x.stride)  # an input serves several outputs
    wide = max(16 // (SIZES.get(dtype, 4) * (1 if shared else x.stride)), 1)
    most = 8 if s.weights is not None and not y.transposed else 4
    if s.channels_last:  # a thread stores what lies together, whatever its neighbours load
        wide, even = 16 // SIZES.get(dtype, 4), [o for o in options if o.v == 1 or o.v <= hint(x.out)]
    else:
        even = [o for o in options if hint(x.out) % o.v == 0 and (x.transposed or hint(x.size) % (o.v * x.stride) == 0)]
    columns = max((o.v for o in even if o.v <= min(wide, most)), default=min(o.v for o in options))
    best, outputs = options[0], hint(product(s.space))
    if mixes_channels(s):
        return _mixing_tile([o for o in even if o.v <= columns], outputs) or best
    rows = 4 if (y.kernel > y.stride or y.transposed) and (halves or y.kernel * x.kernel <= 25) else 2
    for o in options:
        few = outputs // (o.t * o.u * o.v) < MIN_THREADS and o.t * o.u * o.v > best.t * best.u * best.v
        if o.v == columns and o.u <= max(rows, best.u) and o.t <= 4 and o.t * o.u * o.v <= 32 and not few:
            best = o
    return best


def _mixing_tile(options: Sequence[Tile], outputs: int) -> Tile | None:
    """The tile of a sum over channels: four outputs that share what is read, then columns, then eight outputs, and
    rows, as long as threads are not few.
    """
    sizes = {o: o.t * o.u * o.v for o in options if o.u <= 2}
    fits = [o for o, size in sizes.items() if size <= 32 and outputs // size >= MIN_THREADS]
    return max(fits, key=lambda o: (min(o.t, 4), o.v, o.t, o.u), default=None)


__all__ = ["SIZES", "Stencil", "Tile", "default_tile", "mixes_channels", "streams_weights", "tiles"]
