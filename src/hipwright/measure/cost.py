"""The modelled cost of library operators, and coverage: one nominal machine, the same on every target.

A cost is a roofline time: max(operations / rate, bytes / bandwidth), and never less than one launch. It compares the
operators a plan leaves to the library with those of the whole reference; it predicts no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from hipwright.float8 import FLOAT8

# The nominal machine: round figures near one MI300X or H200. Only their ratios matter.
BANDWIDTH = 4e12  # bytes/s
MATRIX_RATE = {"float64": 5e13, "float32": 1e14, "float16": 6e14, "bfloat16": 6e14}  # operations/s
VECTOR_RATE = 5e13  # operations/s
LAUNCH = 1e-6  # s

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex128": 16,
    "complex64": 8,
    **dict.fromkeys(FLOAT8, 1),
}

# Operators that move and compute nothing: views, and allocations whose contents are undefined.
_FREE_NAMES = (
    "alias as_strided broadcast_to chunk detach diagonal empty empty_like empty_strided expand expand_as flatten "
    "lift_fresh movedim narrow new_empty new_empty_strided permute reshape select slice split split_with_sizes squeeze "
    "sym_size sym_stride sym_numel t transpose unbind unflatten unfold unsafe_split unsqueeze view view_as "
    "view_as_complex view_as_real _conj _reshape_alias _unsafe_view is_same_size size stride numel dim swapaxes "
    "swapdims adjoint mT"
)
FREE = frozenset(_FREE_NAMES.split())
COUNTERS = 4096
"""The most elements of a constant, created without inputs, that do not count as work of the reference."""

Spec = Mapping[str, Any]
OpCall = Mapping[str, Any]


def base_name(op: str) -> str:
    """The operator's bare name: "aten.addmm.default" -> "addmm"."""
    parts = op.replace("::", ".").split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def tensor_bytes(spec: Spec) -> int:
    """Bytes that reading a tensor once must move; a broadcast (stride 0) dimension is read once."""
    shape, stride = spec["shape"], spec.get("stride") or ()
    sizes = [1 if len(stride) == len(shape) and stride[i] == 0 else n for i, n in enumerate(shape)]
    return prod(sizes) * ITEM_BYTES.get(spec["dtype"], 8)


def op_bytes(call: OpCall) -> int:
    """Bytes an operator must move: its tensor inputs and outputs once each."""
    return sum(tensor_bytes(s) for s in (*call["in"], *call["out"]))


def op_flops(call: OpCall) -> int:
    """Operations of one call: 2MNK for products, else a few per element touched."""
    name, ins, outs = base_name(call["op"]), call["in"], call["out"]
    out = prod(outs[0]["shape"]) if outs else 0
    if name in ("mm", "bmm", "matmul", "addmm", "baddbmm", "linear", "dot", "mv", "addmv", "addbmm"):
        left = ins[1] if name.startswith(("add", "badd")) and len(ins) > 2 else ins[0]
        return 2 * out * int(left["shape"][-1])
    if "conv" in name and len(ins) > 1:
        weight = ins[1]["shape"]
        transposed = out and len(weight) > 2 and weight[0] == ins[0]["shape"][1] != weight[1]
        return 2 * int(prod(ins[0]["shape"]) if transposed else out) * int(prod(weight[1:]))
    if "scaled_dot_product" in name and len(ins) > 2:
        query, key = ins[0]["shape"], ins[1]["shape"]
        return 4 * int(prod(query)) * int(key[-2])
    if any(word in name for word in ("lstm", "gru", "rnn")):
        steps = prod(ins[0]["shape"][:-1])
        return 2 * int(steps * sum(prod(s["shape"]) for s in ins[1:] if len(s["shape"]) == 2))
    touched = max([out, *(prod(s["shape"]) for s in ins)], default=0)
    return 4 * int(touched)


def is_product(name: str) -> bool:
    """True for operators that run on matrix units."""
    words = ("mm", "matmul", "linear", "conv", "scaled_dot_product", "lstm", "gru", "rnn")
    return any(word in name for word in words)


def op_seconds(call: OpCall) -> float:
    """Seconds one operator costs on the nominal machine; 0 for views and allocations."""
    name = base_name(call["op"])
    if name in FREE or not call["out"]:
        return 0.0
    if not call["in"] and all(prod(s["shape"]) <= COUNTERS for s in call["out"]):
        return 0.0  # a number from the host, or counters that a kernel starts from
    dtype = call["in"][0]["dtype"] if call["in"] else call["out"][0]["dtype"]
    rate = MATRIX_RATE.get(dtype, VECTOR_RATE) if is_product(name) else VECTOR_RATE
    return LAUNCH + max(op_flops(call) / rate, op_bytes(call) / BANDWIDTH)


def total_seconds(calls: Iterable[OpCall]) -> float:
    """Seconds a list of operators costs on the nominal machine."""
    return sum(map(op_seconds, calls))


def coverage(plan_calls: Iterable[OpCall], reference_calls: Iterable[OpCall]) -> float:
    """1 - cost of the plan's library calls / cost of the reference graph, clipped to [0, 1] (docs/program.md).

    The caller sets it to 0 when the outputs remain correct with the program's kernels replaced by no-ops.
    """
    reference = total_seconds(reference_calls)
    if reference <= 0.0:
        return 0.0
    return min(1.0, max(0.0, 1.0 - total_seconds(plan_calls) / reference))
