"""The vocabulary of a plan: its names, attributes and calls, and why others are refused. Torch-free.

`parse` and `check` (parent process) use it for everything that needs no torch; `lower.ops` (worker) decides library
calls by their ATen schema. docs/program.md documents the same vocabulary.
"""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Callable, Iterable

# ---------------------------------------------------------------- names

LIBRARY_ROOTS: dict[tuple[str, ...], str] = {
    ("torch",): "torch",
    ("F",): "functional",
    ("nn", "functional"): "functional",
    ("torch", "nn", "functional"): "functional",
    ("torch", "ops", "aten"): "aten",
    ("torch", "linalg"): "linalg",
    ("torch", "fft"): "fft",
    ("torch", "special"): "special",
    ("math",): "math",
}
"""Dotted prefix of a library call -> the namespace `ops.resolve` knows it by."""

ROOTS = ("torch", "F", "nn", "math")
IMPORTS = ("import torch", "import torch.nn as nn", "import torch.nn.functional as F", "import math")
"""Imports that a program may start with. They have no effect: the names always exist."""

HOST_FUNCTIONS = (
    "min",
    "max",
    "cdiv",
    "next_pow2",
    "len",
    "range",
    "int",
    "float",
    "bool",
    "abs",
    "round",
    "sum",
    "tuple",
    "enumerate",
    "zip",
    "reversed",
)
RESERVED = frozenset((*ROOTS, *HOST_FUNCTIONS, "self", "HIP", "knob"))
FUNCTIONS = ("forward", "prepare", "backward")

TORCH_DTYPES = (
    "float64",
    "double",
    "float32",
    "float",
    "float16",
    "half",
    "bfloat16",
    "int64",
    "long",
    "int32",
    "int",
    "int16",
    "short",
    "int8",
    "uint8",
    "bool",
    "complex128",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
TORCH_VALUES = (
    *TORCH_DTYPES,
    "contiguous_format",
    "channels_last",
    "channels_last_3d",
    "preserve_format",
    "strided",
    "pi",
    "e",
    "inf",
    "nan",
)
"""`torch.NAME` used as a value."""

MATH_VALUES = ("pi", "e", "inf", "nan", "tau")
MATH_FUNCTIONS = (
    "sqrt",
    "exp",
    "log",
    "log2",
    "log10",
    "ceil",
    "floor",
    "pow",
    "sin",
    "cos",
    "tan",
    "tanh",
    "prod",
    "gcd",
    "isqrt",
    "erf",
    "trunc",
    "fabs",
    "log1p",
    "expm1",
    "isinf",
    "isnan",
)

VALUE_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "T", "mT", "H", "mH", "real", "imag", "values", "indices")
"""Attributes readable on any value; the last two are fields of results such as torch.max(x, dim=1)."""
FINFO_FIELDS = ("min", "max", "eps", "tiny", "smallest_normal", "bits")

METADATA_METHODS = (
    "size",
    "stride",
    "numel",
    "nelement",
    "dim",
    "ndimension",
    "is_contiguous",
    "element_size",
    "storage_offset",
    "is_floating_point",
)
CAST_METHODS = ("float", "double", "half", "bfloat16", "long", "int", "short", "bool", "char", "byte")

EMPTIES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
"""Allocations. The launcher makes them, so that the verifier can poison and guard them."""
FACTORIES = (
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "logspace",
    "eye",
    "tril_indices",
    "triu_indices",
    "scalar_tensor",
    "tensor",
    "empty",
    "empty_strided",
    "hann_window",
    "hamming_window",
    "bartlett_window",
    "blackman_window",
    "kaiser_window",
    "rand",
    "randn",
    "randint",
    "randperm",
)
"""Calls that make a tensor from host numbers alone: they get the plan's device unless the plan names one."""

REFUSED: dict[str, str] = {
    "item": "it reads device data on the host; keep the value in a tensor and let a kernel read it",
    "tolist": "it reads device data on the host; keep the values in a tensor",
    "numpy": "it leaves the device; use torch operators",
    "cpu": "a plan stays on the device of its inputs",
    "cuda": "a plan stays on the device of its inputs",
    "data_ptr": "pass the tensor itself to the kernel; the launch takes its pointer",
    "backward": "a plan has no autograd; write `def backward(self, grads, saved)`",
    "requires_grad_": "a plan has no autograd; write `def backward(self, grads, saved)`",
    "data": "a plan has no autograd; use the tensor itself",
    "grad": "a plan has no autograd; write `def backward(self, grads, saved)`",
    "load": "a plan touches no files",
    "save": "a plan touches no files",
    "from_file": "a plan touches no files",
    "compile": "a plan is lowered once already; write the kernel in HIP",
    "jit": "a plan is lowered once already; write the kernel in HIP",
    "manual_seed": "a plan does not touch the random state",
    "seed": "a plan does not touch the random state",
    "no_grad": "a plan has no autograd, so nothing needs to be switched off",
    "append": "values are not changed in place; build a tuple: parts = (*parts, y)",
    "extend": "values are not changed in place; build a tuple: parts = (*parts, *more)",
}
"""Refused names that are often tried, with what to do instead."""


def refusal(name: str) -> str | None:
    """Why a library name is refused regardless of its schema, or None."""
    if name in REFUSED:
        return REFUSED[name]
    if name.startswith(("set_", "use_", "enable_", "disable_")):
        return "a plan does not touch global flags"
    return None


# ---------------------------------------------------------------- host functions


def cdiv(a: int, b: int) -> int:
    """Integer division rounded up, as grids need it."""
    return -(-a // b)


def next_pow2(n: int) -> int:
    """The smallest power of two that is at least n (1 for n <= 1)."""
    return 1 if n <= 1 else 1 << (int(n) - 1).bit_length()


HOST: dict[str, Callable[..., object]] = {
    "min": min,
    "max": max,
    "cdiv": cdiv,
    "next_pow2": next_pow2,
    "len": len,
    "range": range,
    "int": int,
    "float": float,
    "bool": bool,
    "abs": abs,
    "round": round,
    "sum": sum,
    "tuple": tuple,
    "enumerate": enumerate,
    "zip": zip,
    "reversed": reversed,
}
MATH: dict[str, Callable[..., object]] = {name: getattr(math, name) for name in MATH_FUNCTIONS}


# ---------------------------------------------------------------- syntax helpers


def dotted(node: ast.expr) -> tuple[str, ...] | None:
    """("torch", "nn", "functional", "gelu") for a pure attribute chain on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return (node.id, *reversed(parts))


def library_name(node: ast.expr) -> tuple[str, tuple[str, ...]] | None:
    """(namespace, rest) when `node` is a chain that starts at torch, F, nn or math; namespace "" if it is unknown."""
    parts = dotted(node)
    if parts is None or parts[0] not in ROOTS or len(parts) < 2:
        return None
    for length in (3, 2, 1):
        space = LIBRARY_ROOTS.get(parts[:length])
        if space is not None and len(parts) > length:
            return space, parts[length:]
    return "", parts


def is_self_path(node: ast.expr) -> bool:
    """True for self.a, self.a.b, self.a[0].b and the like."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"


def assigned_names(target: ast.expr) -> list[str]:
    """The names that an assignment target binds."""
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean X?' or ''."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""
