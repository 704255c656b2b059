"""Euclidean distances between rows (torch.cdist) as a product: |x - y|^2 = |x|^2 + |y|^2 - 2 x y.

PyTorch computes them so from many rows on, too: by ten kernels, of which two append the norms to the rows, which its
product then reads at widths of no whole vectors. Here the norms are sums in float32, and what follows the product is
one kernel. The absolute error of a square is of the order of that of |x|^2 either way.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hipwright.capture.graph import Graph, Node
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.rewrite.node_writer import NodeWriter, Rewrite

OP = "aten.cdist.default"
MOST_DIRECT_ROWS = 25
"""Rows of both tensors up to which PyTorch subtracts element by element: more exact for rows close together."""
NEVER_PRODUCT = 2
"""The compute mode donot_use_mm_for_euclid_dist."""


def distances(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such distances as products where that is chosen, what could be chosen).

    The choice is `distances:<cdist>`; by default they are products where PyTorch computes them so.
    """
    if choices.get("library"):
        return graph, {}
    writer = NodeWriter(graph)

    def possible(node: Node) -> Rewrite | None:
        return (True, partial(_write, writer, node)) if _is_product(writer, node) else None

    return writer.rewritten("distances", possible, choices)


def _is_product(writer: NodeWriter, node: Node) -> bool:
    """Whether these are distances that PyTorch computes by a product, of a dtype that kernels compute."""
    if node.op != OP or node.kwargs:
        return False
    x, y, out = writer.meta(node.args[0]), writer.meta(node.args[1]), node.outs[0]
    if x is None or y is None or out is None or {y.dtype, out.dtype} != {x.dtype}:
        return False
    args = [*node.args, *(None, None, 2.0, None)[len(node.args) :]]
    p, mode = args[2:4]
    rows = max(writer.hints([x.shape[-2]]), writer.hints([y.shape[-2]]))
    many = rows > MOST_DIRECT_ROWS or mode == 1
    return x.dtype in HALVES | {"float32"} and p == 2 and mode != NEVER_PRODUCT and many and x.shape[-1] != 0


def _write(writer: NodeWriter, node: Node) -> None:
    """The sums of squares, the product, and the root of what they give, which is computed in float32."""
    (x, y), out = node.args[:2], node.outs[0]
    second = writer.meta(y)
    assert second is not None and out is not None
    lead, rows, full = out.shape[:-1], list(second.shape), "float32"
    turned = [*rows[:-2], rows[-1], rows[-2]]
    other = writer.add(node, "aten.transpose.int", [y, -2, -1], turned, dtype=out.dtype)
    value = writer.add(node, "aten.matmul.default", [x, other], out.shape, dtype=out.dtype)
    if out.dtype != full:
        value = writer.convert(node, value, out.shape, dtype=full)
    across = writer.add(
        node, "aten.transpose.int", [_squares(writer, node, y), -2, -1], [*rows[:-2], 1, rows[-2]], dtype=full
    )
    sums = [*lead, out.shape[-1]]
    norms = writer.add(node, "aten.add.Tensor", [_squares(writer, node, x), across], sums, dtype=full)
    value = writer.add(node, "aten.mul.Tensor", [value, 2.0], sums, dtype=full)
    value = writer.add(node, "aten.sub.Tensor", [norms, value], sums, dtype=full)
    value = writer.add(node, "aten.clamp_min.default", [value, 0], sums, dtype=full)
    value = writer.add(node, "aten.sqrt.default", [value], sums, dtype=full, last=out.dtype == full)
    if out.dtype != full:
        writer.convert(node, value, out.shape, dtype=out.dtype, last=True)


def _squares(writer: NodeWriter, node: Node, rows: Any) -> Any:
    """The sums of squares of rows [..., m, d]: [..., m, 1], in float32."""
    meta = writer.meta(rows)
    assert meta is not None
    if meta.dtype != "float32":
        rows = writer.convert(node, rows, meta.shape, dtype="float32")
    value = writer.add(node, "aten.square.default", [rows], meta.shape, dtype="float32")
    return writer.add(node, "aten.sum.dim_IntList", [value, [-1], True], [*meta.shape[:-1], 1], dtype="float32")


__all__ = ["distances"]
