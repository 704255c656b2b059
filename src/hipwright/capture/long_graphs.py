"""Long graphs that need no second trace. Runs in the task host; imports torch.

Making mutation functional and decomposing operators traces the graph once more, which takes as long as the first trace
or twice that: 20 seconds for a network of 200 layers with free sizes. Where few operators write, each to a tensor that
nothing else is a view of, and none is taken apart, the first trace is the graph already but for their names.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

aten = torch.ops.aten
LONG = 300
"""Calls from which on a graph is long: the layers of a network, the steps of a loop that tracing wrote out."""
_WHOLE = {
    "adaptive_avg_pool2d",
    "batch_norm",
    "chunk",
    "conv1d",
    "conv2d",
    "conv3d",
    "dropout",
    "expand_as",
    "flatten",
    "gru_cell",
    "layer_norm",
    "linear",
    "lstm_cell",
    "matmul",
    "max_pool2d",
    "reshape",
    "rnn_relu_cell",
    "rnn_tanh_cell",
}
"""Operators that are made of others by definition, and that the engine knows as they are."""
_FRESH = {
    "adaptive_avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "layer_norm",
    "linear",
    "matmul",
    "max_pool2d",
}
"""Those whose result is never memory that something else has."""
_SHARE = ("alias", "_unsafe_view")
"""Those that share memory though their schemas do not say so."""
_WRITES = {
    "add_",
    "clamp_",
    "dropout_",
    "elu_",
    "hardsigmoid_",
    "hardswish_",
    "hardtanh_",
    "leaky_relu_",
    "mul_",
    "relu_",
}
_WRITES |= {"relu6_", "sigmoid_", "silu_", "sub_", "tanh_"}
"""Operators that write their first argument and have a form that does not."""


def needs_no_decomposition(exported: ExportedProgram, decomposed: Collection[Any], long: int = LONG) -> bool:
    """Whether a graph of at least `long` calls holds functional operators only that are not taken apart.

    What writes in it is made functional first, where that can be told from the graph. decomposed: the operators that
    are taken apart.
    """
    nodes = list(exported.graph.nodes)
    calls = [n for n in nodes if n.op == "call_function"]
    if len(calls) < long or any(n.op == "call_module" and "guards" not in str(n.target) for n in nodes):
        return False
    if not all(n.target is operator.getitem or (_stays(n, decomposed) and _writes_alone(n)) for n in calls):
        return False
    for node in calls:
        _made_functional(exported.graph, node)
    exported.graph.lint()
    return True


def _name(node: Node) -> str:
    """The operator's name without overload; "" for what is no operator of aten."""
    target = node.target
    aten_own = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return target.name().partition("::")[2].partition(".")[0] if aten_own else ""


def _stays(node: Node, decomposed: Collection[Any]) -> bool:
    name = _name(node)
    if not name or node.target in decomposed:
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), "CompositeImplicitAutograd")
    return name in _WHOLE or name in _WRITES or not (composite or node.target._schema.is_mutable)


def _writes_alone(node: Node) -> bool:
    """Whether a call writes nothing, or a tensor of its own kind that nothing is a view of."""
    name = _name(node)
    if name == "batch_norm":
        return node.args[5] is False
    if name == "dropout":
        return node.args[2] is False
    if name not in _WRITES:
        return True
    if name == "dropout_":
        return node.args[2] is False
    written = node.args[0]
    if not isinstance(written, Node) or not _fresh(written):
        return False
    tensors = [a.meta["val"] for a in node.args if isinstance(a, Node) and isinstance(a.meta.get("val"), torch.Tensor)]
    same = {tensor.dtype for tensor in tensors} == {written.meta["val"].dtype}
    return same and all(map(_fresh, written.users))


def _fresh(node: Node) -> bool:
    """Whether a call's result is memory of its own."""
    name = _name(node)
    if node.op != "call_function" or not name:
        return False
    if name in _WRITES:
        return name != "dropout_" and isinstance(node.args[0], Node) and _fresh(node.args[0])
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), "CompositeImplicitAutograd")
    aliased = any(returned.alias_info is not None for returned in node.target._schema.returns)
    return name in _FRESH or not (composite or aliased or name in _SHARE)


def _made_functional(graph: Graph, node: Node) -> None:
    """Replaces one call by the form that writes nothing, and a batch normalisation by the one without training."""
    name = _name(node)
    if name in ("dropout", "dropout_"):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    elif name in _WRITES:
        written = node.args[0]
        node.target = getattr(getattr(aten, name[:-1]), node.target._overloadname)
        after = {later for later in graph.nodes if later > node}
        written.replace_all_uses_with(node, delete_user_cb=lambda user: user in after)
    elif name == "batch_norm":
        x, weight, bias, mean, var, _, momentum, eps, *_ = node.args
        with graph.inserting_before(node):
            target = aten._native_batch_norm_legit_no_training.default
            whole = graph.call_function(target, (x, weight, bias, mean, var, momentum, eps))
            result = graph.call_function(operator.getitem, (whole, 0))
        out = node.meta["val"]
        whole.meta = {**node.meta, "val": (out, out.new_empty(0), out.new_empty(0))}
        result.meta = dict(node.meta)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
