"""The second kernel of attention whose keys are divided: it combines the results of the chunks."""

from __future__ import annotations

from hipwright.engine.ir.index import ONE, product
from hipwright.engine.ir.index_text import to_python
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.problem import AttentionProblem, emit_split_index
from hipwright.engine.templates.base import EmittedKernel
from hipwright.engine.templates.call import CallBody
from hipwright.engine.templates.call_kernel import CallKernel

NAMES = "sink i chunks z row_max row_sum sum c weight safe_max row d i0 i1 i2 i3 i4 i5 head m r"


def combine_kernel(
    body: CallBody, f: AttentionProblem, made: tuple[str, str], chunk: str, sinks: Tensor | None = None
) -> EmittedKernel:
    """One thread an output element adds the chunks, weighted by their sums; a sink is a key without a value."""
    partials, stats = made
    kernel = body.kernel("combine", NAMES)
    names = [f"i{n}" for n in range(len(f.lead))]
    rows = f.queries * f.group
    kernel.line(f"const {kernel.kind} i = blockIdx.x * ({kernel.kind})256 + threadIdx.x;")
    kernel.line(f"if (i >= {kernel.size(product([*f.kv_lead, rows]))} * {f.size_v}) return;")
    kernel.line(f"const {kernel.kind} d = i % {f.size_v}, row = i / {f.size_v}, head = row / {kernel.size(rows)};")
    kernel.line(f"const {kernel.kind} chunks = ({kernel.size(f.keys)} + {chunk} - 1) / {chunk};")
    kernel.line(f"const {kernel.kind} r = row % {kernel.size(rows)}, m = r % {kernel.size(f.queries)};")
    emit_split_index(kernel, "head", f.kv_lead, [*names[:-1], "z"])
    query_head = f"z * {f.group} + r / {kernel.size(f.queries)}" if f.group > 1 else "z"
    kernel.line(f"const {kernel.kind} {names[-1]} = {query_head};")
    sink = "-INFINITY" if sinks is None else _sink(kernel, sinks, names)
    p, s = kernel.pointer(partials), kernel.pointer(stats)
    for text in (
        f"float row_max = {sink}, row_sum = 0.0f, sum = 0.0f;",
        f"for (int c = 0; c < chunks; ++c) row_max = fmaxf(row_max, {s}[2 * (row * chunks + c)]);",
        "const float safe_max = row_max == -INFINITY ? 0.0f : row_max;",
        *([f"row_sum = {f.power('sink - safe_max')};"] if sinks is not None else []),
        "for (int c = 0; c < chunks; ++c) {",
        f"    const float weight = {f.power(f'{s}[2 * (row * chunks + c)] - safe_max')};",
        f"    row_sum += weight * {s}[2 * (row * chunks + c) + 1];",
        f"    sum += weight * {p}[(row * chunks + c) * {f.size_v} + d];",
        "}",
    ):
        kernel.line(text)
    kernel.epilogue(f"(row_sum == 0.0f ? {f.empty(kernel)} : sum / row_sum)", [*names, "m", "d"])
    grid = f"cdiv({to_python(product([*f.kv_lead, rows]) * f.size_v)}, 256)"
    return kernel.finish(grid, "256", "256", "combines the chunks, weighted by their sums")


def _sink(kernel: CallKernel, sinks: Tensor, names: list[str]) -> str:
    """Declares the sink of a query; returns its name."""
    index = [*names, "m", "0"][len(names) + 2 - sinks.rank :]
    place = [0 if size == ONE or i == "0" else i for i, size in zip(index, sinks.shape, strict=True)]
    kernel.line(f"const float sink = {kernel.load(sinks, place)};")
    return "sink"
