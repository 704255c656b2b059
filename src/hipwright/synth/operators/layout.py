"""Operators that move numbers: to other places, into one tensor, or several times."""

from __future__ import annotations

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import Range, SketchValue, need

LAYOUT = "layout"
NOTHING = Range(0.0, 0.0, 0.0, 0.0)


def _even(s: Sketch, x: SketchValue, factor: int = 2) -> int:
    axes = [k for k in range(1, x.rank) if x.shape[k] % factor == 0 and x.shape[k] >= 2 * factor]
    need(bool(axes), "no size to divide")
    return s.rng.choice(axes)


def _resized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if k == axis else n for k, n in enumerate(shape))


@operator("permute", LAYOUT, "another order of the axes", ranks=(3, 4), view=True)
def _permute(s: Sketch, x: SketchValue) -> SketchValue:
    orders: dict[int, list[tuple[int, ...]]] = {3: [(0, 2, 1), (1, 0, 2)], 4: [(0, 2, 3, 1), (0, 2, 1, 3)]}
    need(x.rank in orders)
    chosen = s.rng.choice(orders[x.rank])
    text = f"{x.name}.permute({', '.join(map(str, chosen))})"
    return s.let("turned", text, tuple(x.shape[k] for k in chosen), x.range, level=x.level)


@operator("transpose", LAYOUT, "a transposition", view=True)
def _transpose(s: Sketch, x: SketchValue) -> SketchValue:
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return s.let("transposed", f"{x.name}.transpose(-2, -1)", shape, x.range, level=x.level)


@operator("cat", LAYOUT, "a concatenation")
def _concatenate(s: Sketch, x: SketchValue) -> SketchValue:
    other, axis = s.partner(x), s.rng.choice(range(1, x.rank))
    text = f"torch.cat([{x.name}, {other.name}], dim={axis if axis < x.rank - 1 else -1})"
    return s.let("joined", text, _resized(x.shape, axis, 2 * x.shape[axis]), x.range | other.range)


@operator("stack", LAYOUT, "a stacking", ranks=(2, 3))
def _stack(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.rank <= 3)
    other = s.partner(x)
    text = f"torch.stack([{x.name}, {other.name}], dim=1)"
    return s.let("stacked", text, (x.shape[0], 2, *x.shape[1:]), x.range | other.range)


@operator("pad", LAYOUT, "padding with a constant", aten="constant_pad_nd")
def _pad(s: Sketch, x: SketchValue) -> SketchValue:
    before, after = s.rng.choice([(1, 1), (0, 3), (2, 1), (3, 0)])
    shape = _resized(x.shape, x.rank - 1, x.shape[-1] + before + after)
    value = round(x.range.mean + 0.2 * x.range.std, 2)  # no extreme
    need(x.range.low <= value <= x.range.high)
    text = f"F.pad({x.name}, ({before}, {after}), value={value:g})"
    return s.let("padded", text, shape, x.range)


@operator("reflection_pad1d", LAYOUT, "padding by reflection", ranks=(3,))
def _reflect(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.rank == 3 and x.shape[-1] > 4)
    shape = _resized(x.shape, 2, x.shape[-1] + 5)
    return s.let("padded", f'F.pad({x.name}, (2, 3), mode="reflect")', shape, x.range, level=x.level)


@operator("replication_pad2d", LAYOUT, "padding by the edge", ranks=(4,))
def _replicate(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.rank == 4)
    shape = (*x.shape[:2], x.shape[2] + 2, x.shape[3] + 3)
    return s.let("padded", f'F.pad({x.name}, (1, 2, 1, 1), mode="replicate")', shape, x.range, level=x.level)


@operator("roll", LAYOUT, "a cyclic shift and a difference")
def _roll(s: Sketch, x: SketchValue) -> SketchValue:
    axis, shift = s.rng.choice(range(1, x.rank)), s.rng.choice([1, 2, -1])
    need(x.shape[axis] > 4)
    text = f"{x.name} - torch.roll({x.name}, {shift}, dims={axis})"
    return s.let("change", text, x.shape, x.range + x.range.times(-1), level=True)


@operator("flip", LAYOUT, "a reversal")
def _flip(s: Sketch, x: SketchValue) -> SketchValue:
    axis = s.rng.choice(range(1, x.rank))
    return s.let("mirrored", f"torch.flip({x.name}, dims=({axis},))", x.shape, x.range, level=x.level)


@operator("chunk", LAYOUT, "a gate of two halves")
def _gate(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _even(s, x)
    need(x.range.largest < 60 and abs(x.range.mean) < 20)
    first, second = s.fresh("gate"), s.fresh("up")
    s.line(f"{first}, {second} = {x.name}.chunk(2, dim={axis if axis < x.rank - 1 else -1})")
    shape = _resized(x.shape, axis, x.shape[axis] // 2)
    known = x.range * x.range.through(lambda v: min(1.0, max(0.0, 0.5 + v / 5)))
    return s.let("gated", f"torch.sigmoid({first}) * {second}", shape, known)


@operator("split", LAYOUT, "a sum of three parts", aten="split")
def _split(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _even(s, x, 3)
    names = [s.fresh(hint) for hint in ("left", "middle", "right")]
    part = x.shape[axis] // 3
    s.line(f"{', '.join(names)} = torch.split({x.name}, {part}, dim={axis})")
    known = x.range + x.range.times(-0.5) + x.range.times(0.25)
    text = f"{names[0]} - 0.5 * {names[1]} + 0.25 * {names[2]}"
    return s.let("combined", text, _resized(x.shape, axis, part), known)


@operator("glu", "gates", "a gated linear unit", aten="glu")
def _glu(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _even(s, x)
    need(x.range.largest < 60)
    known = x.range * x.range.through(lambda v: min(1.0, max(0.0, 0.5 + v / 5)))
    shape = _resized(x.shape, axis, x.shape[axis] // 2)
    return s.let("gated", f"F.glu({x.name}, dim={axis if axis < x.rank - 1 else -1})", shape, known)


@operator("pixel_shuffle", LAYOUT, "a pixel shuffle", ranks=(4,))
def _pixel_shuffle(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.rank == 4 and x.shape[1] % 4 == 0)
    shape = (x.shape[0], x.shape[1] // 4, 2 * x.shape[2], 2 * x.shape[3])
    return s.let("shuffled", f"F.pixel_shuffle({x.name}, 2)", shape, x.range)


@operator("channel_shuffle", LAYOUT, "a channel shuffle", ranks=(4,))
def _channel_shuffle(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.rank == 4 and x.shape[1] % 2 == 0 and x.shape[1] >= 4)
    return s.let("shuffled", f"F.channel_shuffle({x.name}, 2)", x.shape, x.range, level=x.level)


@operator("im2col", LAYOUT, "windows as columns", ranks=(4,))
def _columns(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.rank == 4 and min(x.shape[2:]) >= 4)
    sizes = [(n - 2) // 2 + 1 for n in x.shape[2:]]
    shape = (x.shape[0], 4 * x.shape[1], sizes[0] * sizes[1])
    return s.let("columns", f"F.unfold({x.name}, kernel_size=2, stride=2)", shape, x.range)


@operator("repeat_interleave", LAYOUT, "a repetition of every element")
def _repeat_each(s: Sketch, x: SketchValue) -> SketchValue:
    axis = s.rng.choice(range(1, x.rank))
    text = f"{x.name}.repeat_interleave(2, dim={axis})"
    return s.let("repeated", text, _resized(x.shape, axis, 2 * x.shape[axis]), x.range, level=x.level)


@operator("tile", LAYOUT, "a tiling")
def _tile(s: Sketch, x: SketchValue) -> SketchValue:
    text = f"torch.tile({x.name}, ({'1, ' * (x.rank - 1)}2))"
    return s.let("tiled", text, _resized(x.shape, x.rank - 1, 2 * x.shape[-1]), x.range, level=x.level)


@operator("tril", LAYOUT, "a lower triangle")
def _lower_triangle(s: Sketch, x: SketchValue) -> SketchValue:
    need(min(x.shape[-2:]) >= 3 and max(x.shape[-2:]) < 12 * min(x.shape[-2:]))
    return s.let("causal", f"torch.tril({x.name})", x.shape, x.range | NOTHING)


@operator("slice", LAYOUT, "a difference of neighbours")
def _difference(s: Sketch, x: SketchValue) -> SketchValue:
    need(x.shape[-1] >= 4)
    shape = _resized(x.shape, x.rank - 1, x.shape[-1] - 1)
    text = f"{x.name}[..., 1:] - {x.name}[..., :-1]"
    return s.let("difference", text, shape, x.range + x.range.times(-1), level=True)


@operator("unflatten", LAYOUT, "a division into groups", ranks=(2, 3), view=True)
def _groups(s: Sketch, x: SketchValue) -> SketchValue:
    ways = [g for g in (2, 3, 4, 5, 8) if x.shape[-1] % g == 0 and x.shape[-1] > 2 * g]
    need(bool(ways) and x.rank <= 3)
    count = s.rng.choice(ways)
    shape = (*x.shape[:-1], count, x.shape[-1] // count)
    return s.let("grouped", f"{x.name}.unflatten(-1, ({count}, -1))", shape, x.range, level=x.level)


OPERATORS: tuple[SynthOperator, ...] = (
    _permute,
    _transpose,
    _concatenate,
    _stack,
    _pad,
    _reflect,
    _replicate,
    _roll,
    _flip,
    _gate,
    _split,
    _glu,
    _pixel_shuffle,
    _channel_shuffle,
    _columns,
    _repeat_each,
    _tile,
    _lower_triangle,
    _difference,
    _groups,
)
