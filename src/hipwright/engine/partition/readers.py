"""Kinds of operators, and which operators read a value of the graph."""

from __future__ import annotations

import msgspec

from hipwright.capture.graph import Graph, Node, readers, references, returned, short, users
from hipwright.engine.lower.conv import TO_CHANNELS_LAST
from hipwright.engine.lower.operators import family
from hipwright.engine.partition.operators import TABLE
from hipwright.engine.rewrite.loops.records import body_of

HEAVY = {
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "matmul",
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "einsum",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "scaled_dot_product_attention",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "bilinear",
    "dot",
    "mv",
    "addmv",
    "addbmm",
    "chain_matmul",
    "tensordot",
    "inner",
    "linalg_multi_dot",
}
"""Matrix products, convolutions, attention and recurrent cells: written by a call template or left to the library."""
PRODUCTS = ("linear", "matmul", "bmm", "mm")
VIEWS = {
    "view",
    "reshape",
    "_unsafe_view",
    "flatten",
    "unflatten",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "t",
    "expand",
    "select",
    "slice",
    "split",
    "chunk",
    "unbind",
    "getitem",
    "split_with_sizes",
    "detach",
    "alias",
    "clone",
    "dropout",
    "contiguous",
    "expand_as",
    "lift_fresh_copy",
    "view_as",
}


def reader_counts(graph: Graph) -> dict[str, int]:
    """How many operators read each value, through views too; outputs and buffer updates count."""
    direct, leaving = users(graph), returned(graph)
    counts: dict[str, int] = {}
    for node in reversed(graph.nodes):
        total = leaving.count(node.name)
        for user in direct.get(node.name, []):
            total += counts.get(user.name, 0) if short(user.op) in VIEWS else 1
        counts[node.name] = total
    return counts


def feeds_kernel(graph: Graph, name: str) -> bool:
    """Whether a kernel reads the value, possibly through views, so that adding a bias there costs nothing."""
    for node in graph.nodes:
        if name in references([*node.args, *node.kwargs.values()]):
            kind = short(node.op)
            if kind in VIEWS:
                if feeds_kernel(graph, node.name):
                    return True
            elif kind not in HEAVY and node.op in TABLE:
                return True
    return False


def read_by_pointwise(graph: Graph, name: str) -> bool:
    """Whether a pointwise operator reads the value, possibly through views."""
    for node in readers(graph, name):
        if short(node.op) in VIEWS:
            if read_by_pointwise(graph, node.name):
                return True
        elif family(node.op) == "pointwise":
            return True
        elif (body := body_of(node)) is not None:
            names = [n for n, a in zip(body.given, node.args[0], strict=True) if a["node"] == name]
            if any(read_by_pointwise(body.graph, n) for n in names):
                return True
    return False


def is_read_turned(graph: Graph, node: Node) -> bool:
    """Whether permutations to channels last alone read the image that a node gives."""
    found = readers(graph, node.name)
    turned = all(short(r.op) == "permute" and [d % 4 for d in r.args[1]] == TO_CHANNELS_LAST for r in found)
    return bool(found) and turned and node.name not in returned(graph)


def reads_activation(graph: Graph, node: Node) -> bool:
    """Whether a node reads what pointwise operators make of a product's result, possibly through views."""
    made, seen = {n.name: n for n in graph.nodes}, set(references(node.args))
    left = [(name, False) for name in references(node.args)]
    while left:
        name, activated = left.pop()
        found = made.get(name)
        if found is None:
            continue
        pointwise = family(found.op) == "pointwise"
        if activated and short(found.op) in PRODUCTS:
            return True
        if pointwise or short(found.op) in VIEWS:
            new = set(references(found.args)) - seen
            seen |= new
            left += [(other, activated or pointwise) for other in sorted(new)]
    return False


def read_by_products(graph: Graph, name: str) -> bool:
    """Whether a value is read by matrix products and by nothing else."""
    found = readers(graph, name)
    return bool(found) and all(short(n.op) in PRODUCTS for n in found)


def read_by_one_pool(graph: Graph, name: str) -> bool:
    """Whether one pooling over windows reads what pointwise operators make of a value, and nothing else does."""
    left, seen, pools = [name], {name}, set[str]()
    while left:
        for node in readers(graph, left.pop()):
            kind = short(node.op)
            if kind.startswith(("avg_pool", "max_pool")):
                pools.add(node.name)
            elif kind not in VIEWS and family(node.op) != "pointwise":
                return False
            elif node.name not in seen:
                seen.add(node.name)
                left.append(node.name)
    return len(pools) == 1 and not seen & set(returned(graph))


def cropped(graph: Graph, node: Node, kind: str) -> Node:
    """The node with the output shape that is read, where only the first outputs of a (causal) convolution are."""
    made = node
    if kind in ("conv1d", "conv2d", "conv3d"):
        last: Node | None = node
        while last is not None and (last := _first_of(graph, last, int(kind[4]))) is not None:
            made = msgspec.structs.replace(node, outs=last.outs)
    return made


def _first_of(graph: Graph, node: Node, n: int) -> Node | None:
    """The only reader of a value, if it is a slice of the first elements of one of the last n dimensions; else None."""
    found = readers(graph, node.name)
    if len(found) != 1 or found[0].op != "aten.slice.Tensor" or found[0].kwargs or node.name in returned(graph):
        return None
    given = list(found[0].args[1:])
    dim, start, _, step = given + [0, None, None, 1][len(given) :]
    rank = len(found[0].outs[0].shape) if found[0].outs[0] else 0
    return found[0] if rank and dim % rank >= rank - n and start in (None, 0) and step == 1 else None
