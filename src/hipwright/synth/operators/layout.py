"""Operators that move elements: views, concatenations, padding, shifts, repetitions and the like."""

from __future__ import annotations

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import Range, SketchValue, require

LAYOUT = "layout"
ZERO = Range(0.0, 0.0, 0.0, 0.0)


def _divisible_axis(s: Sketch, x: SketchValue, factor: int = 2) -> int:
    """An axis after the first whose size is a multiple of `factor`."""
    axes = [k for k in range(1, x.rank) if x.shape[k] % factor == 0 and x.shape[k] >= 2 * factor]
    require(bool(axes), "no size to divide")
    return s.rng.choice(axes)


def _resized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if k == axis else n for k, n in enumerate(shape))


@operator("permute", LAYOUT, "another order of the axes", ranks=(3, 4), view=True)
def _permute(s: Sketch, x: SketchValue) -> SketchValue:
    orders: dict[int, list[tuple[int, ...]]] = {3: [(0, 2, 1), (1, 0, 2)], 4: [(0, 2, 3, 1), (0, 2, 1, 3)]}
    require(x.rank in orders)
    chosen = s.rng.choice(orders[x.rank])
    text = f"{x.name}.permute({', '.join(map(str, chosen))})"
    return s.assign("turned", text, tuple(x.shape[k] for k in chosen), x.range, constant_sums=x.constant_sums)


@operator("transpose", LAYOUT, "a transposition", view=True)
def _transpose(s: Sketch, x: SketchValue) -> SketchValue:
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return s.assign("transposed", f"{x.name}.transpose(-2, -1)", shape, x.range, constant_sums=x.constant_sums)


@operator("cat", LAYOUT, "a concatenation")
def _concatenate(s: Sketch, x: SketchValue) -> SketchValue:
    other, axis = s.second_operand(x), s.rng.choice(range(1, x.rank))
    text = f"torch.cat([{x.name}, {other.name}], dim={axis if axis < x.rank - 1 else -1})"
    return s.assign("joined", text, _resized(x.shape, axis, 2 * x.shape[axis]), x.range | other.range)


@operator("stack", LAYOUT, "a stacking", ranks=(2, 3))
def _stack(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank <= 3)
    other = s.second_operand(x)
    text = f"torch.stack([{x.name}, {other.name}], dim=1)"
    return s.assign("stacked", text, (x.shape[0], 2, *x.shape[1:]), x.range | other.range)


@operator("pad", LAYOUT, "padding with a constant", aten="constant_pad_nd")
def _pad(s: Sketch, x: SketchValue) -> SketchValue:
    before, after = s.rng.choice([(1, 1), (0, 3), (2, 1), (3, 0)])
    shape = _resized(x.shape, x.rank - 1, x.shape[-1] + before + after)
    value = round(x.range.mean + 0.2 * x.range.std, 2)  # not an extreme value
    require(x.range.low <= value <= x.range.high)
    text = f"F.pad({x.name}, ({before}, {after}), value={value:g})"
    return s.assign("padded", text, shape, x.range)


@operator("reflection_pad1d", LAYOUT, "padding by reflection", ranks=(3,))
def _reflect(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 3 and x.shape[-1] > 4)
    shape = _resized(x.shape, 2, x.shape[-1] + 5)
    return s.assign("padded", f'F.pad({x.name}, (2, 3), mode="reflect")', shape, x.range, constant_sums=x.constant_sums)


@operator("replication_pad2d", LAYOUT, "padding by the edge", ranks=(4,))
def _replicate(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 4)
    shape = (*x.shape[:2], x.shape[2] + 2, x.shape[3] + 3)
    return s.assign(
        "padded", f'F.pad({x.name}, (1, 2, 1, 1), mode="replicate")', shape, x.range, constant_sums=x.constant_sums
    )


@operator("roll", LAYOUT, "a cyclic shift and a difference")
def _roll(s: Sketch, x: SketchValue) -> SketchValue:
    axis, shift = s.rng.choice(range(1, x.rank)), s.rng.choice([1, 2, -1])
    require(x.shape[axis] > 4)
    text = f"{x.name} - torch.roll({x.name}, {shift}, dims={axis})"
    return s.assign("change", text, x.shape, x.range + x.range.scaled(-1), constant_sums=True)


@operator("flip", LAYOUT, "a reversal")
def _flip(s: Sketch, x: SketchValue) -> SketchValue:
    axis = s.rng.choice(range(1, x.rank))
    return s.assign(
        "mirrored", f"torch.flip({x.name}, dims=({axis},))", x.shape, x.range, constant_sums=x.constant_sums
    )


@operator("chunk", LAYOUT, "a gate of two halves")
def _gate(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _divisible_axis(s, x)
    require(x.range.largest < 60 and abs(x.range.mean) < 20)
    first, second = s.new_name("gate"), s.new_name("up")
    s.statement(f"{first}, {second} = {x.name}.chunk(2, dim={axis if axis < x.rank - 1 else -1})")
    shape = _resized(x.shape, axis, x.shape[axis] // 2)
    known = x.range * x.range.mapped(lambda v: min(1.0, max(0.0, 0.5 + v / 5)))
    return s.assign("gated", f"torch.sigmoid({first}) * {second}", shape, known)


@operator("split", LAYOUT, "a sum of three parts", aten="split")
def _split(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _divisible_axis(s, x, 3)
    names = [s.new_name(hint) for hint in ("left", "middle", "right")]
    part = x.shape[axis] // 3
    s.statement(f"{', '.join(names)} = torch.split({x.name}, {part}, dim={axis})")
    known = x.range + x.range.scaled(-0.5) + x.range.scaled(0.25)
    text = f"{names[0]} - 0.5 * {names[1]} + 0.25 * {names[2]}"
    return s.assign("combined", text, _resized(x.shape, axis, part), known)


@operator("glu", "gates", "a gated linear unit", aten="glu")
def _glu(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _divisible_axis(s, x)
    require(x.range.largest < 60)
    known = x.range * x.range.mapped(lambda v: min(1.0, max(0.0, 0.5 + v / 5)))
    shape = _resized(x.shape, axis, x.shape[axis] // 2)
    return s.assign("gated", f"F.glu({x.name}, dim={axis if axis < x.rank - 1 else -1})", shape, known)


@operator("pixel_shuffle", LAYOUT, "a pixel shuffle", ranks=(4,))
def _pixel_shuffle(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 4 and x.shape[1] % 4 == 0)
    shape = (x.shape[0], x.shape[1] // 4, 2 * x.shape[2], 2 * x.shape[3])
    return s.assign("shuffled", f"F.pixel_shuffle({x.name}, 2)", shape, x.range)


@operator("channel_shuffle", LAYOUT, "a channel shuffle", ranks=(4,))
def _channel_shuffle(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 4 and x.shape[1] % 2 == 0 and x.shape[1] >= 4)
    return s.assign("shuffled", f"F.channel_shuffle({x.name}, 2)", x.shape, x.range, constant_sums=x.constant_sums)


@operator("im2col", LAYOUT, "windows as columns", ranks=(4,))
def _columns(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 4 and min(x.shape[2:]) >= 4)
    sizes = [(n - 2) // 2 + 1 for n in x.shape[2:]]
    shape = (x.shape[0], 4 * x.shape[1], sizes[0] * sizes[1])
    return s.assign("columns", f"F.unfold({x.name}, kernel_size=2, stride=2)", shape, x.range)


@operator("repeat_interleave", LAYOUT, "a repetition of every element")
def _repeat_each(s: Sketch, x: SketchValue) -> SketchValue:
    axis = s.rng.choice(range(1, x.rank))
    text = f"{x.name}.repeat_interleave(2, dim={axis})"
    return s.assign(
        "repeated", text, _resized(x.shape, axis, 2 * x.shape[axis]), x.range, constant_sums=x.constant_sums
    )


@operator("tile", LAYOUT, "a tiling")
def _tile(s: Sketch, x: SketchValue) -> SketchValue:
    text = f"torch.tile({x.name}, ({'1, ' * (x.rank - 1)}2))"
    return s.assign(
        "tiled", text, _resized(x.shape, x.rank - 1, 2 * x.shape[-1]), x.range, constant_sums=x.constant_sums
    )


@operator("tril", LAYOUT, "a lower triangle")
def _lower_triangle(s: Sketch, x: SketchValue) -> SketchValue:
    require(min(x.shape[-2:]) >= 3 and max(x.shape[-2:]) < 12 * min(x.shape[-2:]))
    return s.assign("causal", f"torch.tril({x.name})", x.shape, x.range | ZERO)


@operator("slice", LAYOUT, "a difference of neighbours")
def _difference(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[-1] >= 4)
    shape = _resized(x.shape, x.rank - 1, x.shape[-1] - 1)
    text = f"{x.name}[..., 1:] - {x.name}[..., :-1]"
    return s.assign("difference", text, shape, x.range + x.range.scaled(-1), constant_sums=True)


@operator("unflatten", LAYOUT, "a division into groups", ranks=(2, 3), view=True)
def _groups(s: Sketch, x: SketchValue) -> SketchValue:
    ways = [g for g in (2, 3, 4, 5, 8) if x.shape[-1] % g == 0 and x.shape[-1] > 2 * g]
    require(bool(ways) and x.rank <= 3)
    count = s.rng.choice(ways)
    shape = (*x.shape[:-1], count, x.shape[-1] // count)
    return s.assign("grouped", f"{x.name}.unflatten(-1, ({count}, -1))", shape, x.range, constant_sums=x.constant_sums)


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
