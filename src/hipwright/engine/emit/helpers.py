"""Device functions that kernels call, written into a program only when it uses them.

Each text is for float; a double version is derived when doubles use it. Sources of the formulas are in docs/engine.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipwright.engine.emit import row_helpers
from hipwright.engine.emit.best import BEST, BEST_BLOCKS, BEST_OP, BEST_OPS, BEST_TEXTS, SHUFFLE_BEST
from hipwright.engine.emit.packs import KEEP, KEPT, tile_functions
from hipwright.engine.emit.state_tiles import FAST_EXP
from hipwright.engine.ir.small_ints import NATURAL_FLOAT, SMALL_FLOAT

GENERIC: dict[str, str] = {
    "relu": "return x < T(0) ? T(0) : x;  // NaN stays NaN",
    "relu6": "return x < T(0) ? T(0) : (x > T(6) ? T(6) : x);",
    "square": "return x * x;",
    "cube": "return x * x * x;",
    "sign": "return T((x > T(0)) - (x < T(0)));",
    "absolute": "return x < T(0) ? -x : (x == T(0) ? T(0) : x);",
}
"""One operand, any arithmetic type."""

PAIRS: dict[str, str] = {
    "nan_max": "return (a > b || a != a) ? a : b;  // NaN wins, as in torch.max",
    "nan_min": "return (a < b || a != a) ? a : b;  // NaN wins, as in torch.min",
}
"""Two operands of one arithmetic type."""

FLOAT: dict[str, tuple[str, str]] = {
    "sigmoid": ("float x", "return quotient(1.0f, 1.0f + expf(-x));"),
    "silu": ("float x", "return quotient(x, 1.0f + expf(-x));"),
    "gelu": ("float x", "return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));"),
    "gelu_tanh": (
        "float x",
        "return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));",
    ),
    "reciprocal": ("float x", "return 1.0f / x;"),
    "over": (
        "float x",
        "const float y = 1.0f / x, most = 3.402823466e38f;\n"
        "    return x != 0.0f && fabsf(y) > most ? copysignf(most, x) : y;  // 0 over a subnormal is 0",
    ),
    "frac": ("float x", "return x - truncf(x);"),
    "mish": ("float x", "return x * tanhf(x > 20.0f ? x : log1pf(expf(x)));"),
    "hardswish": ("float x", "return x * nan_min(nan_max(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);"),
    "hardsigmoid": ("float x", "return nan_min(nan_max(x + 3.0f, 0.0f), 6.0f) * (1.0f / 6.0f);"),
    "softsign": ("float x", "return x / (1.0f + fabsf(x));"),
    "logsigmoid": ("float x", "return (x < 0.0f ? x : 0.0f) - log1pf(expf(-fabsf(x)));"),
    "tanhshrink": ("float x", "return x - tanhf(x);"),
    "selu": (
        "float x",
        "return 1.0507009873554805f * (x > 0.0f ? x : 1.6732632423543772f * expm1f(x));",
    ),
    "leaky_relu": ("float x, float slope", "return x > 0.0f ? x : x * slope;"),
    "elu": (
        "float x, float alpha, float scale, float input_scale",
        "return x > 0.0f ? x * scale : alpha * scale * expm1f(x * input_scale);",
    ),
    "celu": ("float x, float alpha", "return x > 0.0f ? x : alpha * expm1f(x / alpha);"),
    "softplus": (
        "float x, float beta, float threshold",
        "return x * beta > threshold ? x : log1pf(expf(x * beta)) / beta;",
    ),
    "threshold": ("float x, float limit, float value", "return x <= limit ? value : x;"),
    "clamp": ("float x, float low, float high", "return nan_min(nan_max(x, low), high);"),
    "hardshrink": ("float x, float limit", "return x >= -limit && x <= limit ? 0.0f : x;"),
    "softshrink": (
        "float x, float limit",
        "return x > limit ? x - limit : (x < -limit ? x + limit : 0.0f * x);",
    ),
    "finite_or_zero": ("float x", "return x - x == 0.0f || x != x ? x : 0.0f;  // inf shifts nothing"),
    "squared_error": ("float a, float b", "const float d = a - b;\n    return d * d;"),
    "absolute_error": ("float a, float b", "return fabsf(a - b);"),
    "smooth_l1": (
        "float a, float b, float beta",
        "const float d = fabsf(a - b);\n    return d < beta ? 0.5f * d * d / beta : d - 0.5f * beta;",
    ),
    "huber": (
        "float a, float b, float delta",
        "const float d = fabsf(a - b);\n    return d <= delta ? 0.5f * d * d : delta * (d - 0.5f * delta);",
    ),
    "binary_entropy": (
        "float x, float y",
        "return (y - 1.0f) * nan_max(log1pf(-x), -100.0f) - y * nan_max(logf(x), -100.0f);",
    ),
    "logit_entropy": (
        "float x, float y, float weight",
        "const float scale = (weight - 1.0f) * y + 1.0f;\n"
        "    return (1.0f - y) * x + scale * (log1pf(expf(-fabsf(x))) + (x < 0.0f ? -x : 0.0f));",
    ),
    "kl": ("float x, float y", "return (y > 0.0f ? y * logf(y) : (y == 0.0f ? 0.0f : y * NAN)) - y * x;"),
    "kl_log": ("float x, float y", "return expf(y) * (y - x);"),
    "hinge_embedding": (
        "float x, float y, float margin",
        "return (y != 1.0f ? nan_max(margin - x, 0.0f) : 0.0f) + (y != -1.0f ? x : 0.0f);",
    ),
    "cosine_embedding": (
        "float x, float y, float margin",
        "return y == 1.0f ? 1.0f - x : (y == -1.0f ? nan_max(x - margin, 0.0f) : 0.0f);",
    ),
    "floor_mod": (
        "float a, float b",
        "const float m = fmodf(a, b);\n    return m != 0.0f && (b < 0.0f) != (m < 0.0f) ? m + b : m;",
    ),
    "truncated_mod": ("float a, float b", "return fmodf(a, b);"),
    "floor_div": (
        "float a, float b",
        "if (b == 0.0f) return a / b;\n    const float m = fmodf(a, b);\n    float q = (a - m) / b;\n"
        "    if (m != 0.0f && (b < 0.0f) != (m < 0.0f)) q -= 1.0f;\n"
        "    if (q == 0.0f) return copysignf(0.0f, a / b);\n"
        "    const float f = floorf(q);\n    return q - f > 0.5f ? f + 1.0f : f;",
    ),
    "exp_fast": (
        "float x",
        "// off by |x| units of float, far below one of a half type; below 2^-126 it is 0, as AMD's __expf is\n"
        + FAST_EXP,
    ),
    "sqrt_fast": (
        "float x",
        "// by the device's own instruction, a unit of float off: the exact one takes twice as many, and a branch\n"
        "#if defined(__CUDA_ARCH__)\n"
        "    float y;\n"
        '    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));\n'
        "    return y;\n"
        "#elif defined(__AMDGCN__)\n"
        "    const bool tiny = x < 0x1p-96f;  // it takes numbers below the smallest normal one for 0\n"
        "    const float y = __builtin_amdgcn_sqrtf(tiny ? x * 0x1p32f : x);\n"
        "    return tiny ? y * 0x1p-16f : y;\n"
        "#else\n"
        "    return sqrtf(x);\n"
        "#endif",
    ),
    "small_float": SMALL_FLOAT,
    "natural_float": NATURAL_FLOAT,
    "round_half": ("float x", "return (float)__half(x);"),
    "round_bfloat16": ("float x", "return (float)__hip_bfloat16(x);"),
    "corner_ratio": ("float source, float target", "return target > 0.0f ? source / target : 0.0f;"),
    "corner_position": ("long i, float ratio", "return ratio * (float)i;"),
    "centre_position": (
        "long i, float ratio",
        "const float p = ratio * ((float)i + 0.5f) - 0.5f;\n    return p < 0.0f ? 0.0f : p;",
    ),
}
"""Floating operands; math calls carry the suffix f."""

INTEGER: dict[str, str] = {
    "floor_mod": "const T m = a % b;\n    return m != 0 && (m < 0) != (b < 0) ? m + b : m;",
    "truncated_mod": "return a % b;",
    "floor_div": "const T q = a / b;\n    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;",
    # PyTorch's: a count below 0 or beyond the width shifts everything out
    "shift_left": "const unsigned T bits = a;\n    return b < 0 || b >= 8 * (int)sizeof(a) ? 0 : bits << b;",
    "shift_right": "const T most = 8 * (int)sizeof(a) - 1;\n    return a >> (b < 0 || b > most ? most : b);",
    "integer_pow": "T out = 1;\n    for (T k = 0; k < b; ++k) out *= a;\n    return out;",
}
"""Two integers."""

INDEX: dict[str, str] = {
    "wrap_index": "long wrap_index(long i, long n) {\n    return i < 0 ? i + n : i;\n}",
    "reflect_index": "long reflect_index(long i, long n) {\n    i = i < 0 ? -i : i;\n"
    "    return i >= n ? 2 * (n - 1) - i : i;\n}",
    "replicate_index": "long replicate_index(long i, long n) {\n    return i < 0 ? 0 : (i >= n ? n - 1 : i);\n}",
    "circular_index": "long circular_index(long i, long n) {\n    return i < 0 ? i + n : (i >= n ? i - n : i);\n}",
    "nearest_index": "long nearest_index(long i, float ratio, long n) {\n"
    "    const long k = (long)floorf((float)i * ratio);\n    return k < n - 1 ? k : n - 1;\n}",
    "nearest_exact_index": "long nearest_exact_index(long i, float ratio, long n) {\n"
    "    const long k = (long)floorf(((float)i + 0.5f) * ratio);\n    return k < n - 1 ? k : n - 1;\n}",
}

LIBRARY = {
    "tanh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "copysign",
    "pow",
    "lgamma",
}
"""Called as in the math library: expf on float, exp on double."""

_MATH = re.compile(r"\b(" + "|".join(sorted([*LIBRARY, "fmod", "fabs"], key=len, reverse=True)) + r")f\(")

REDUCTION = {
    "Sum": "return a + b;",
    "Product": "return a * b;",
    "Max": "return nan_max(a, b);",
    "Largest": "return fmax(a, b);",
    "Min": "return nan_min(a, b);",
    "Any": "return a || b;",
    "All": "return a && b;",
}

SHUFFLE = """template <typename T>
__device__ T shuffle_xor(T v, int distance) {
    return __shfl_xor(v, distance);
}
"""
LANE_REDUCE = """// Combine over LANE_COUNT neighbouring lanes (a power of two, at most 32); each gets the result.
template <int LANE_COUNT, typename T, typename Op>
__device__ T lane_reduce(T v, Op op) {
    for (int distance = LANE_COUNT / 2; distance > 0; distance >>= 1) v = op(v, shuffle_xor(v, distance));
    return v;
}
"""
QUOTIENT = """// a / b to two units in the last place, 0 where |b| is above 2^126: for denominators of 1 and more.
__device__ float quotient(float a, float b) {
    return __fdividef(a, b);
}
__device__ double quotient(double a, double b) {
    return a / b;
}
"""
APART = """// a - b, each rounded before: never one instruction with the product that a or b may be.
__device__ __forceinline__ float apart(float a, float b) {
#ifdef __clang__
#pragma clang fp contract(off)
    return a - b;
#else
    return __fsub_rn(a, b);
#endif
}
__device__ __forceinline__ double apart(double a, double b) {
#ifdef __clang__
#pragma clang fp contract(off)
    return a - b;
#else
    return __dsub_rn(a, b);
#endif
}
"""
STRUCTURES = {
    "quotient": QUOTIENT,
    "apart": APART,
    "Best": BEST,
    "Tile": tile_functions(),
    "shuffle_xor": SHUFFLE,
    "shuffle_best": SHUFFLE_BEST,
    "lane_reduce": LANE_REDUCE,
    **row_helpers.STRUCTURES,
    **BEST_TEXTS,
}

FIRST = ("quotient", "apart", "Best", "Tile")

RESERVED = (
    set(GENERIC)
    | set(PAIRS)
    | set(FLOAT)
    | set(INTEGER)
    | set(INDEX)
    | LIBRARY
    | set(STRUCTURES)
    | {f"{name}f" for name in LIBRARY}
    | {
        "int",
        "long",
        "float",
        "double",
        "bool",
        "char",
        "short",
        "unsigned",
        "signed",
        "const",
        "void",
        "if",
        "else",
        "for",
        "while",
        "return",
        "struct",
        "template",
        "typename",
        "auto",
        "static",
        "inline",
        "class",
        "public",
        "private",
        "new",
        "delete",
        "this",
        "true",
        "false",
        "switch",
        "case",
        "default",
        "break",
        "continue",
        "do",
        "goto",
        "sizeof",
        "namespace",
        "using",
        "operator",
        "union",
        "enum",
        "volatile",
        "register",
        "extern",
        "abs",
        "min",
        "max",
        "div",
        "half",
        "row",
        "lane",
        "live",
        "base",
        "first",
        "i",
        "r",
        "k",
        "j0",
        "j1",
        "j2",
        "j3",
        "i0",
        "i1",
        "i2",
        "i3",
        "n",
        "index",
        "round",
        "signal",
        "exp2",
        "gamma",
        "y0",
        "y1",
        "yn",
        "jn",
        "time",
        "log",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "NAN",
        "INFINITY",
        "stack",
        "pack",
        "carry",
        "fabs",
        "fmod",
        "logb",
        "remove",
        "rename",
        "xor",
        "and",
        "or",
        "not",
        "bitand",
        "bitor",
        "compl",
        # what row, scan and transpose kernels call their own
        "across",
        "arrived",
        "before",
        "border",
        "bound",
        "chunks",
        "col",
        "column",
        "count",
        "flip",
        "head",
        "items",
        "line",
        "part",
        "reach",
        "rest",
        "segment",
        "start",
        "step",
        "team",
        "ta",
        "tb",
        "ta0",
        "tb0",
        "tx",
        "ty",
        "ticket",
        "tile",
        "tiles",
        "tiles_a",
        "tiles_b",
        "total",
        "v",
        "value",
        "width",
        "kept",
    }
)


def moves_packs(used: Iterable[tuple[str, str]]) -> bool:
    """Whether the functions that kernels call read or write packs of 16 bytes."""
    return ("Tile", "") in _close(set(used))


def prelude(used: Iterable[tuple[str, str]], stream: str = "no") -> str:
    """Definitions of what kernels call: pairs of (function, type), type "" for structures and index functions.

    stream: which accesses leave the caches first, one of packs.PACKED, or packs.KEEP.
    """
    wanted = _close(set(used))
    out: list[str] = []
    names = {name for name, _ in wanted}
    structures = {**STRUCTURES, "Tile": tile_functions(stream)}
    out += [structures[name] for name in FIRST if name in names]
    for table, parameters in ((GENERIC, "T x"), (PAIRS, "T a, T b")):
        out += [
            f"template <typename T>\n__device__ T {name}({parameters}) {{\n    {body}\n}}\n"
            for name, body in table.items()
            if name in names
        ]
    for name, (parameters, body) in FLOAT.items():
        for kind in ("float", "double"):
            if (name, kind) in wanted:
                text = f"__device__ float {name}({parameters}) {{\n    {body}\n}}\n"
                out.append(text if kind == "float" else as_double(text))
    for name, body in INTEGER.items():
        for kind in ("int", "long"):
            if (name, kind) in wanted:
                out.append(
                    f"__device__ {kind} {name}({kind} a, {kind} b) {{\n    {body.replace('T ', kind + ' ')}\n}}\n"
                )
    out += [f"__device__ {text}\n" for name, text in INDEX.items() if (name, "") in wanted]
    out += _operators(wanted)
    out += [text for name, text in structures.items() if name in names and name not in FIRST]
    return (KEPT if stream == KEEP else "") + "\n".join(out)


def _close(wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Add what the wanted functions themselves call."""
    if any(n in ("Max", "Min") for n, _ in wanted):
        wanted |= {("nan_max" if n == "Max" else "nan_min", "") for n, _ in wanted if n in ("Max", "Min")}
    for name, _ in list(wanted):
        if name in FLOAT:
            wanted |= {(other, "") for other in (*PAIRS, "quotient") if other in FLOAT[name][1]}
        wanted |= {(other, "") for other in row_helpers.NEEDS.get(name, ())}
    if any(name in ("block_reduce", "lane_reduce", "team_collect", "team_gather", "sum_before") for name, _ in wanted):
        wanted |= {
            ("shuffle_xor", ""),
            *((("block_reduce", ""),) if ("sum_before", "") in wanted else ()),
        }
    for name, _ in list(wanted):
        if name in BEST_OPS:
            wanted |= {("Best", ""), ("shuffle_best", "")}
            wanted |= {(BEST_BLOCKS[name], "")} if ("block_reduce", "") in wanted else set()
    return wanted


def _operators(wanted: set[tuple[str, str]]) -> list[str]:
    out = []
    for name, body in REDUCTION.items():
        if (name, "") in wanted:
            out.append(
                f"struct {name} {{\n    template <typename T>\n    __device__ T operator()(T a, T b) const {{\n"
                f"        {body}\n    }}\n}};\n"
            )
    for name, (beats, keeps, comment) in BEST_OPS.items():
        if (name, "") in wanted:
            text = BEST_OP.replace("COMMENT", comment).replace("NAME", name)
            out.append(text.replace("BEATS", beats).replace("KEEPS", keeps))
    return out


def as_double(text: str) -> str:
    """The same function on doubles."""
    text = _MATH.sub(lambda m: f"{m[1]}(", text).replace("float", "double")
    return re.sub(r"(\d\.\d+)f\b", r"\1", text)
