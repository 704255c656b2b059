"""The selections that are written in HIP, and by which kernels (block.py, lanes.py)."""

from __future__ import annotations

from typing import Any

from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.lower.table import as_int
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.templates.offers import KernelCall, Offer, Output
from hipwright.engine.templates.select.block import BLOCK_KEYS, MAX_KEYS, Selection, as_rows, write_select, write_sort
from hipwright.engine.templates.select.lanes import fits_registers, write_lanes

MAX_TAKE = 128
OWN_SORT = 256
"""Elements of a row up to which rows are sorted by our network by default: 524,288 rows of 255 halves took an H200 4.3
ms, and the library 7.7; 64,000 rows of 768 took 2.9, and the library 1.3.
"""


def best(call: KernelCall) -> Offer | None:
    """The k largest or smallest of each row, in order; or the k-th smallest."""
    take = as_int(call.arg(1))
    only = call.kind == "kthvalue"
    dim = call.arg(2, "dim", -1)
    if take > MAX_TAKE or take < 1:
        raise NotLowered(f"{take} of a row")
    largest = not only and bool(call.arg(3, "largest", True))
    return _offer(call, dim, take, largest, only=only)


def sort(call: KernelCall) -> Offer | None:
    """Rows of up to 2048 sorted; equal values keep their order."""
    dim, descending = call.arg(1, "dim", -1), call.arg(2, "descending", False)
    if call.kind == "msort":
        dim, descending = 0, False
    elif call.node.op.endswith(".stable"):
        dim, descending = call.kwargs.get("dim", -1), call.kwargs.get("descending", False)
    outputs = {"sort": ("values", "indices"), "argsort": ("indices",), "msort": ("values",)}[call.kind]
    return _offer(call, dim, None, bool(descending), outputs=outputs)


def _offer(call: KernelCall, dim: Any, take: int | None, largest: bool, **how: Any) -> Offer:
    x: Tensor = call.args[0]
    if COMPUTE[x.dtype] not in ("float", "int") or x.rank == 0:
        raise NotLowered(f"a selection from {x.dtype}")
    operand, rows, inner = as_rows(call.c, x, as_int(dim) % x.rank)
    length = operand.shape[1]
    many = call.c.hint(length)
    if take is None and many > MAX_KEYS // 2:
        raise NotLowered("rows too long to sort in LDS")
    selection = Selection(rows, length, inner, take, largest, **how)
    if fits_registers(take, many):
        kind, write = "lanes", write_lanes
    elif take is None or many <= BLOCK_KEYS:
        kind, write = "sort", write_sort
    else:
        kind, write = "select", write_select
    outputs = [Output(call.shape(k)) for k in range(len(selection.outputs))]
    default = kind != "sort" or take is not None or many <= OWN_SORT
    return Offer(kind, write, [operand], outputs, default=default, whole=True, data=selection)
