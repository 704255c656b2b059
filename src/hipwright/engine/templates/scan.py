"""Running sums and products along one dimension: one block a row, a carry from chunk to chunk."""

from __future__ import annotations

from hipwright.engine.emit import literal
from hipwright.engine.expr import COMPUTE
from hipwright.engine.templates.base import Body, Kernel, fused

OPERATORS = {"sum": ("Sum", 0), "prod": ("Product", 1)}


def scan(body: Body) -> Kernel:
    """Inclusive scan; the input's own computation is fused in."""
    group, emit = body.group, body.emit
    (member,) = group.members
    (d,) = group.dims
    kept = [k for k in range(len(group.space)) if k != d]
    emit.taken |= {"row", "r", "start", "carry", "value", *(f"i{k}" for k in range(8))}
    table, lines = body.name_variables(kept, "i", "row") if kept else ({}, [])
    inner, _ = body.name_variables([d], "r", "r")
    body.rename({**table, **inner})
    body.knobs.add("SCAN_BLOCK")
    kind, ctype = body.index_type, COMPUTE[member.item.dtype]
    operator, identity = OPERATORS[member.item.reduction]
    start = literal(identity, ctype)
    length = emit.position(group.space[d])
    emit.used |= {(operator, ""), ("block_scan", "")}
    if kept:
        emit.line(f"const {kind} row = blockIdx.x;")
    for line in lines:
        emit.line(line)
    emit.line(f"__shared__ {ctype} last;  // the running total at the end of a chunk")
    emit.line(f"{ctype} carry = {start};")
    emit.open(f"for ({kind} start = 0; start < {length}; start += SCAN_BLOCK)")
    emit.line(f"const {kind} r = start + threadIdx.x;")
    emit.line(f"{ctype} value = {start};")
    emit.open(f"if (r < {length})")
    emit.count([member.value])
    emit.line(f"value = {emit.text(member.value)[0]};")
    emit.close()
    emit.line(f"value = {operator}()(carry, block_scan<SCAN_BLOCK>(value, {operator}()));")
    emit.line(f"if (r < {length}) " + body.store(member, "value", emit.position(member.position)))
    emit.line("if (threadIdx.x == SCAN_BLOCK - 1) last = value;")
    emit.line("__syncthreads();")
    emit.line("carry = last;")
    emit.line("__syncthreads();  // `last` is written again in the next chunk")
    emit.close()
    outer = [group.space[k] for k in kept]
    grid = "{rows}" if outer else "1"
    return body.finish(grid, "SCAN_BLOCK", fused(group), emit.lines, "SCAN_BLOCK")
