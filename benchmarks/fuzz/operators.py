"""Pointwise operators, reductions, scans, indexing and views of generated graphs. Each adds statements to a sketch, or
raises Unfit."""

from __future__ import annotations

from math import prod

from benchmarks.fuzz.sketch import GraphSketch, Unfit, Value

UNARY = (
    "torch.tanh({})",
    "torch.sigmoid({})",
    "F.gelu({})",
    "F.silu({})",
    "torch.relu({})",
    "{} * 0.75",
    "{}.abs().sqrt()",
    "torch.exp(-{}.abs())",
    "torch.log1p({}.abs())",
    "torch.rsqrt({}.abs() + 0.5)",
    "{}.clamp(-1.0, 0.5)",
    "F.softplus({})",
    "F.leaky_relu({}, 0.1)",
    "torch.where({0} > 0, {0}, {0} * 0.1)",
    "F.hardswish({})",
    "torch.erf({})",
    "({}).to(torch.float32)",
    "({}).to(torch.float16)",
    "({} > 0).to(torch.int32).to(torch.float32)",
    "torch.sin({})",
    "{}.neg()",
)
BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "torch.maximum({}, {})",
    "torch.minimum({}, {})",
    "{} / ({}.abs() + 1.0)",
    "torch.where({0} > {1}, {0}, {1})",
    "torch.addcmul({0}, {0}, {1}, value=0.5)",
    "torch.lerp({}, {}, 0.3)",
)
REDUCE = ("sum", "mean", "amax", "amin", "var", "std", "logsumexp")


def unary(s: GraphSketch) -> Value:
    """One of the pointwise operators."""
    return s.add(s.one_of(UNARY).format(s.float_value().name))


def binary(s: GraphSketch) -> Value:
    """Two operands: another value, an input that is broadcast, or a parameter."""
    x = s.float_value()
    kind = s.one_of(("value", "input", "parameter", "scalar"))
    if kind == "value":
        other = s.float_value().name
    elif kind == "scalar":
        other = "0.37"
    else:
        shape = tuple(1 if s.maybe() else n for n in x.shape)
        shape = shape[s.one_of(range(len(shape))) :] if shape and s.maybe() else shape
        other = s.input(shape).name if kind == "input" else s.parameter(shape)
    template = s.one_of(BINARY if kind != "scalar" else BINARY[:3])
    return s.add(template.format(x.name, other))


def packed(s: GraphSketch) -> Value:
    """Masks, integers and selections beside floats."""
    x = s.float_value()
    kind = s.one_of(("mask", "masked_fill", "integers", "bits", "compare"))
    if kind == "mask":
        return s.add(f"torch.where({s.mask(x.shape).name}, {x.name}, {x.name}.neg())")
    if kind == "masked_fill":
        return s.add(f"{x.name}.masked_fill({s.mask(x.shape[-1:]).name}, 0.25)")
    if kind == "integers":
        i = s.integers(x.shape, 100, s.one_of(("int32", "int64", "int16", "uint8")))
        return s.add(f"{x.name} + ({i.name} % 7).to({x.name}.dtype)")
    if kind == "bits":
        i = s.integers(x.shape, 100, "int32")
        return s.add(f"(({i.name} >> 1) & 3) * {x.name}")
    return s.add(f"(({x.name} > 0.1) | ({x.name} < -0.5)).to(torch.float32)")


def _dims(s: GraphSketch, x: Value) -> str:
    count = s.one_of(range(1, x.rank + 1)) if x.rank else 0
    if not count:
        raise Unfit
    first = s.one_of(range(x.rank - count + 1))
    dims = list(range(first, first + count)) if s.maybe() else sorted({first, x.rank - 1})
    return str(dims[0]) if len(dims) == 1 else str(tuple(dims))


def reduction(s: GraphSketch) -> Value:
    """A reduction over one or several dimensions, and what it is subtracted from."""
    x = s.float_value()
    keep = ", keepdim=True" if s.maybe() else ""
    kind = s.one_of(REDUCE)
    if kind in ("var", "std"):
        keep = f", correction={s.one_of((0, 1))}{keep}"
    reduced = s.add(f"torch.{kind}({x.name}, {_dims(s, x)}{keep})")
    if reduced.rank == x.rank and s.maybe():
        return s.add(f"{x.name} - {reduced.name}")
    return reduced


def norm(s: GraphSketch) -> Value:
    """A softmax or a norm; batch norm in training or evaluation mode."""
    x = s.float_value()
    kind = s.one_of(("softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm", "normalize"))
    if kind in ("softmax", "log_softmax"):
        return s.add(f"torch.{kind}({x.name}, dim={s.dim(x)})")
    if kind == "normalize":
        return s.add(f"F.normalize({x.name}, dim={s.dim(x)})")
    if x.rank < 2 or x.dtype != s.dtype:
        raise Unfit
    if kind in ("layer_norm", "rms_norm"):
        shape = x.shape[-s.one_of(range(1, x.rank)) :]
        weight = s.parameter(shape) if s.maybe() else "None"
        bias = f", {s.parameter(shape)}" if kind == "layer_norm" and weight != "None" else ""
        return s.add(f"F.{kind}({x.name}, {shape}, {weight}{bias})")
    channels = x.shape[1]
    if kind == "group_norm":
        groups = s.one_of([g for g in (1, 2, 3, 4, channels) if channels % g == 0])
        affine = f", {s.parameter((channels,))}, {s.parameter((channels,))}" if s.maybe() else ""
        return s.add(f"F.group_norm({x.name}, {groups}{affine})")
    if x.rank > 4:
        raise Unfit
    affine = "" if s.maybe() else ", affine=False"
    mode = "" if s.maybe() else ".eval()"
    dims = 1 if x.rank < 4 else 2
    return s.add(f"{s.module(f'torch.nn.BatchNorm{dims}d({channels}{affine}){mode}')}({x.name})")


def scan(s: GraphSketch) -> Value:
    """A running sum, product or maximum along any dimension."""
    x = s.float_value()
    dim = s.dim(x)
    kind = s.one_of(("cumsum", "cumsum", "cumprod", "cummax", "logcumsumexp", "flip"))
    if kind == "cumprod":
        return s.add(f"torch.cumprod(1.0 + 0.01 * torch.tanh({x.name}), {dim})")
    if kind == "cummax":
        return s.add(f"torch.cummax({x.name}, {dim})[0]")
    if kind == "flip":
        return s.add(f"torch.cumsum({x.name}.flip({dim}), {dim}).flip({dim})")
    return s.add(f"torch.{kind}({x.name}, {dim})")


def select(s: GraphSketch) -> Value:
    """Largest elements, their places, and sorted rows."""
    x = s.float_value()
    if x.rank == 0:
        raise Unfit
    dim = s.dim(x)
    kind = s.one_of(("argmax", "argmin", "topk", "sort", "median", "max", "kthvalue"))
    if kind in ("argmax", "argmin"):
        return s.add(f"torch.{kind}({x.name}, dim={dim}, keepdim={s.maybe()})")
    if kind in ("topk", "kthvalue"):
        k = s.one_of([n for n in (1, 2, 3, 5, 8, x.shape[dim]) if n <= x.shape[dim]])
        return s.add(f"torch.{kind}({x.name}, {k}, dim={dim})[0]")
    return s.add(f"torch.{kind}({x.name}, dim={dim})[0]")


def indexing(s: GraphSketch) -> Value:
    """Lookups, gathers and scatters by integers that are inputs."""
    x = s.float_value()
    kind = s.one_of(("gather", "index_select", "embedding", "scatter_add", "index_add", "scatter", "take", "bag"))
    if kind in ("embedding", "bag"):
        rows, width = s.size(257), s.size(129)
        i = s.integers(s.shape((1, 2)) if kind == "embedding" else (s.size(65), s.size(9)), rows)
        if prod(i.shape) * width > 1 << 14:
            raise Unfit
        call = "F.embedding" if kind == "embedding" else "F.embedding_bag"
        return s.add(f"{call}({i.name}, {s.parameter((rows, width))})")
    if x.rank == 0:
        raise Unfit
    dim = s.one_of(range(x.rank))
    if kind in ("gather", "scatter", "scatter_add"):
        shape = tuple(s.size(40) if k == dim else n for k, n in enumerate(x.shape))
        i = s.integers(shape, x.shape[dim])
        if kind == "gather":
            return s.add(f"torch.gather({x.name}, {dim}, {i.name})")
        if kind == "scatter":
            return s.add(f"torch.scatter({x.name}, {dim}, {i.name}, 0.5)")
        return s.add(f"torch.scatter_add({x.name}, {dim}, {i.name}, {s.input(shape).name}.to({x.name}.dtype))")
    i = s.integers((s.size(65),), x.shape[dim])
    if kind == "take":
        return s.add(f"{x.name}[{', '.join([':'] * dim + [i.name])}]")
    if kind == "index_select":
        return s.add(f"torch.index_select({x.name}, {dim}, {i.name})")
    shape = tuple(i.shape[0] if k == dim else n for k, n in enumerate(x.shape))
    return s.add(f"torch.index_add({x.name}, {dim}, {i.name}, {s.input(shape).name}.to({x.name}.dtype))")


def views(s: GraphSketch) -> Value:
    """Another view of a value, or a copy of parts of it."""
    x = s.float_value()
    if x.rank == 0:
        return s.add(f"{x.name}[None].expand(3)")
    dim = s.dim(x)
    kind = s.one_of(("transpose", "flatten", "slice", "step", "unsqueeze", "expand", "pad", "roll", "split", "tile"))
    if kind == "transpose":
        return s.add(f"{x.name}.transpose({dim}, {s.dim(x)})")
    if kind == "slice":
        return s.add(f"{x.name}.narrow({dim}, {s.one_of((0, 1))}, {max(x.shape[dim] - 1, 1)})")
    if kind == "step":
        return s.add(f"{x.name}[..., ::2]")
    if kind == "split":
        return s.add(f"torch.chunk({x.name}, 2, {dim})[-1]")
    plain = {
        "flatten": f"{x.name}.flatten({s.one_of(range(x.rank))})",
        "unsqueeze": f"{x.name}.unsqueeze({dim})",
        "expand": f"{x.name}[None].expand(3, {', '.join(['-1'] * x.rank)})",
        "pad": f"F.pad({x.name}, ({s.one_of((0, 1, 3))}, {s.one_of((0, 2))}))",
        "roll": f"torch.roll({x.name}, {s.one_of((1, -2))}, {dim})",
        "tile": f"{x.name}.repeat({', '.join(['1'] * (x.rank - 1) + ['2'])})",
    }
    return s.add(plain[kind])


def joined(s: GraphSketch) -> Value:
    """Concatenations and stacks of a value with others and with a part of itself."""
    x = s.float_value()
    if x.rank == 0:
        return s.add(f"torch.stack([{x.name}, {x.name} * 2])")
    dim = s.one_of(range(x.rank))
    kind = s.one_of(("cat", "stack", "part", "three"))
    if kind == "stack":
        return s.add(f"torch.stack([{x.name}, torch.tanh({x.name})], {dim})")
    if kind == "part":
        return s.add(f"torch.cat([{x.name}, {x.name}.narrow({dim}, 0, 1) * 3, {x.name}], {dim})")
    shape = tuple(s.size(33) if k == dim else n for k, n in enumerate(x.shape))
    other = s.input(shape)
    if kind == "three":
        return s.add(f"torch.cat([{other.name}, torch.relu({x.name}), {other.name}.abs()], {dim})")
    return s.add(f"torch.cat([{x.name}, {other.name}], {dim})")


def in_place(s: GraphSketch) -> Value:
    """A copy that is written to in place."""
    x = s.float_value()
    kept = s.add(f"{x.name}.clone()")
    where = s.one_of(("", "[..., :1]")) if x.rank else ""
    s.statement(f"{kept.name}{where}{s.one_of(('.mul_(2.0)', '.add_(0.5)', '.clamp_(min=0.0)', '.fill_(0.25)'))}")
    return kept


WHOLE = (
    "{0} + {0}",
    "{0} * 3 - 1",
    "{0} // 3",
    "{0} % 5",
    "torch.bitwise_xor({0}, {0} >> 1)",
    "torch.where({0} > 3, {0}, {0} * 2)",
    "{0}.clamp(1, 6)",
    "{0}.abs()",
    "torch.cumsum({0}, {1})",
    "{0}.sum({1})",
    "{0}.amax({1}, keepdim=True)",
    "{0}.amin({1})",
    "torch.argmax({0}, {1})",
    "({0} > 2).any({1})",
    "({0} > 0).all({1})",
    "torch.count_nonzero({0}, {1})",
    "torch.sort({0}, {1})[0]",
    "torch.cummax({0}, {1})[0]",
    "{0}.to(torch.int8)",
    "{0}.to(torch.float32)",
    "({0} == 2).to(torch.uint8)",
    "{0}.flip({1})",
    "{0}.transpose(0, {1})",
    "{0}.prod({1})",
    "{0}.to(torch.float32).mean({1})",
)


def whole(s: GraphSketch) -> Value:
    """Up to four operators on whole numbers or booleans."""
    shape = s.shape((1, 2, 3))
    kind = s.one_of(("int64", "int32", "int16", "uint8", "bool"))
    value = s.mask(shape) if kind == "bool" else s.integers(shape, 8, kind)
    for _ in range(s.one_of((1, 2, 3, 4))):
        if value.rank == 0:
            break
        value = s.add(s.one_of(WHOLE).format(value.name, s.dim(value)))
    return value
