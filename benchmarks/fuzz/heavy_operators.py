"""Products, convolutions, pooling, resampling, attention and recurrent layers of generated graphs."""

from __future__ import annotations

from math import prod

from benchmarks.fuzz.sketch import PRODUCTS, GraphSketch, Unfit, Value


def product(s: GraphSketch) -> Value:
    """A product with a parameter, an input or itself."""
    x = s.float_value()
    if x.rank == 0 or x.dtype != s.dtype:
        raise Unfit
    rows, k = prod(x.shape[:-1]), x.shape[-1]
    most = max(PRODUCTS // max(rows * k, 1), 1)
    n = s.size(min(most, 257, (1 << 14) // max(rows, 1)))
    scale = k**-0.5
    kind = s.one_of(("linear", "linear", "matmul", "bmm", "einsum", "mv", "outer"))
    if kind == "linear":
        bias = f", {s.parameter((n,))}" if s.maybe() else ""
        return s.add(f"F.linear({x.name}, {s.parameter((n, k), scale)}{bias})")
    if kind == "matmul":
        return s.add(f"{x.name} @ {s.parameter((k, n), scale)}")
    if kind == "mv":
        return s.add(f"torch.matmul({x.name}, {s.parameter((k,), scale)})")
    if kind == "outer" and x.rank == 2:
        return s.add(f"torch.einsum('ij,ik->jk', {x.name}, {s.input((x.shape[0], n)).name})")
    if x.rank != 3:
        raise Unfit
    if kind == "bmm":
        other = s.input((x.shape[0], k, n))
        return s.add(f"torch.bmm({x.name}, {other.name})")
    return s.add(f"torch.einsum('bij,bkj->b{s.one_of(('ik', 'ki'))}', {x.name}, {x.name})")


def convolution(s: GraphSketch) -> Value:
    """A convolution with groups, stride, padding and dilation."""
    x = s.float_value((3, 4))
    if x.dtype != s.dtype:
        raise Unfit
    dims, channels = x.rank - 2, x.shape[1]
    groups = s.one_of([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = groups * s.one_of((1, 2, 3, 4, 8, 9))
    kernel = tuple(s.one_of((1, 2, 3, 5)) for _ in range(dims))
    if out * channels // groups * prod(kernel) * prod(x.shape[2:]) * x.shape[0] > PRODUCTS:
        raise Unfit
    weight = s.parameter((out, channels // groups, *kernel), (channels // groups * prod(kernel)) ** -0.5)
    bias = s.parameter((out,)) if s.maybe() else "None"
    how = f"stride={s.one_of((1, 1, 2, 3))}, padding={s.one_of((0, 1, 2))}, dilation={s.one_of((1, 1, 2))}"
    return s.add(f"F.conv{dims}d({x.name}, {weight}, {bias}, {how}, groups={groups})")


def transposed_convolution(s: GraphSketch) -> Value:
    """A transposed convolution."""
    x = s.float_value((3, 4))
    if x.dtype != s.dtype:
        raise Unfit
    dims, channels = x.rank - 2, x.shape[1]
    kernel = tuple(s.one_of((1, 2, 3)) for _ in range(dims))
    out = s.one_of((1, 2, 3, 4, 8))
    weight = s.parameter((channels, out, *kernel), (channels * prod(kernel)) ** -0.5)
    stride = s.one_of((1, 2))
    return s.add(f"F.conv_transpose{dims}d({x.name}, {weight}, stride={stride}, padding={s.one_of((0, 1))})")


def pool(s: GraphSketch) -> Value:
    """A pooling, with padding and ceil_mode, or windows as they are."""
    x = s.float_value((3, 4))
    dims = x.rank - 2
    kind = s.one_of(("max", "avg", "adaptive_avg", "adaptive_max", "lp", "unfold"))
    if kind.startswith("adaptive"):
        sizes = tuple(s.one_of((1, 2, 3, 5)) for _ in range(dims))
        return s.add(f"F.{kind}_pool{dims}d({x.name}, {sizes if dims > 1 else sizes[0]})")
    kernel, stride = s.one_of((2, 3)), s.one_of((1, 2, 3))
    if kind == "unfold":
        return s.add(f"{x.name}.unfold(-1, {kernel}, {stride})")
    if kind == "lp":
        return s.add(f"F.lp_pool{dims}d({x.name}.abs() + 0.1, 2, {kernel}, {stride})")
    more = f", dilation={s.one_of((1, 2))}" if kind == "max" else f", count_include_pad={s.maybe()}"
    ceil = f", ceil_mode={s.maybe()}"
    return s.add(f"F.{kind}_pool{dims}d({x.name}, {kernel}, {stride}, padding={s.one_of((0, 1))}{ceil}{more})")


def resample(s: GraphSketch) -> Value:
    """A resampling by a factor or to a size."""
    x = s.float_value((3, 4))
    dims = x.rank - 2
    mode = s.one_of(("nearest", "linear" if dims == 1 else "bilinear", "nearest-exact", "bicubic"))
    corners = f", align_corners={s.maybe()}" if "linear" in mode or mode == "bicubic" else ""
    if s.maybe():
        how = f"scale_factor={s.one_of((2, 0.5, 1.5, 3))}"
    else:
        how = f"size={tuple(s.one_of((1, 2, 5, 8, 13)) for _ in range(dims))}"
    if mode == "bicubic" and dims == 1:
        raise Unfit
    return s.add(f"F.interpolate({x.name}, {how}, mode='{mode}'{corners})")


def attention(s: GraphSketch) -> Value:
    """Heads from a value, or from inputs."""
    batch, heads, queries, width = s.size(2), s.one_of((1, 2, 3)), s.size(65), s.one_of((4, 8, 16, 32, 33))
    keys = queries if s.maybe() else s.size(65)
    q = s.input((batch, heads, queries, width))
    k, v = (s.input((batch, heads, keys, width), layout="dense") for _ in range(2))
    how = s.one_of(("", ", is_causal=True", "mask", "bias"))
    if how == "mask":
        how = f", attn_mask={s.raw_input(f'torch.rand(({queries}, {keys})) < 0.9').name}"
    elif how == "bias":
        how = f", attn_mask={s.input((queries, keys), layout='dense').name}"
    return s.add(f"F.scaled_dot_product_attention({q.name}, {k.name}, {v.name}{how})")


def recurrent(s: GraphSketch) -> Value:
    """A recurrent layer."""
    x = s.float_value((3,))
    if x.dtype != s.dtype or x.shape[0] > 17 or s.dtype != "float32":
        raise Unfit
    hidden = s.one_of((1, 3, 8, 17, 32))
    kind = s.one_of(("GRU", "LSTM", "RNN"))
    first = f", batch_first={s.maybe()}, bidirectional={s.maybe()}"
    return s.add(f"{s.module(f'torch.nn.{kind}({x.shape[2]}, {hidden}{first})')}({x.name})[0]")
