"""Attention kernels that PyTorch chose for one device, as operators that every device has.

Where only the result is read, `scaled_dot_product_attention`; where the CPU's flash kernel is a half of training, its
definition: the logarithm of each row's sum, and the gradients by the probabilities that it gives again (Dao, 2023:
FlashAttention-2, section 2.3, arXiv:2307.08691).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

_KINDS = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")
_CHOSEN = tuple(getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default for kind in _KINDS)
_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def attention_whole(graph: Graph) -> None:
    """Replaces the kernels that drop nothing. In place; nodes need their values in `meta`."""
    for node in list(graph.nodes):
        given = _bound(node) if node.target in (*_CHOSEN, _BACKWARD) else {}
        if not given or given.get("dropout_p"):
            continue
        with graph.inserting_before(node):
            if node.target is _BACKWARD:
                _replace(graph, node, _gradients(graph, given))
            elif all(_place(user) == 0 for user in node.users):
                _replace(graph, node, [_whole(graph, given)])
            elif node.target is _ON_CPU:
                _replace(graph, node, [_whole(graph, given), _sums(graph, given)])


def dropped_share(node: Node) -> float | None:
    """The share that one of the kernels drops at random; None for another operator."""
    return float(_bound(node).get("dropout_p") or 0.0) if node.target in _CHOSEN else None


def _replace(graph: Graph, node: Node, results: list[Node]) -> None:
    for user in list(node.users):
        result = results[_place(user)]
        result.meta.update(user.meta)
        user.replace_all_uses_with(result)
        graph.erase_node(user)
    graph.erase_node(node)


def _place(user: Node) -> int:
    assert user.target is operator.getitem, user
    return int(user.args[1])


def _whole(graph: Graph, given: dict[str, Any]) -> Node:
    mask = given.get("attn_mask", given.get("attn_bias"))
    args = (given["query"], given["key"], given["value"], mask, 0.0, bool(given.get("is_causal")))
    return graph.call_function(torch.ops.aten.scaled_dot_product_attention.default, args, {"scale": given.get("scale")})


def _sums(graph: Graph, given: dict[str, Any]) -> Node:
    """The logarithms of the rows' sums, in float32 for half types, [..., queries]."""
    return _call(graph, "logsumexp", _scores(graph, given), [-1])


def _scores(graph: Graph, given: dict[str, Any]) -> Node:
    """What the softmax is taken of, [..., queries, keys]."""
    query, key = (_wide(graph, given[name], given["query"]) for name in ("query", "key"))
    transposed = _call(graph, "transpose", key, -2, -1, overload="int")
    scores = _call(graph, "mul", _call(graph, "matmul", query, transposed), _scale(given), overload="Tensor")
    if (mask := given.get("attn_mask")) is not None:
        if mask.meta["val"].dtype == torch.bool:
            hidden = _call(graph, "logical_not", mask)
            return _call(graph, "masked_fill", scores, hidden, float("-inf"), overload="Scalar")
        scores = _call(graph, "add", scores, mask, overload="Tensor")
    if given.get("is_causal"):
        ones = _call(graph, "ones_like", scores, dtype=torch.bool)
        later = _call(graph, "triu", ones, 1)
        scores = _call(graph, "masked_fill", scores, later, float("-inf"), overload="Scalar")
    return scores


def _gradients(graph: Graph, given: dict[str, Any]) -> list[Node]:
    """The gradients of query, key and value."""
    like = given["query"]
    names = ("grad_out", "query", "key", "value", "out")
    grad, query, key, value, out = (_wide(graph, given[name], like) for name in names)
    rows = _call(graph, "unsqueeze", given["logsumexp"], -1)
    shares = _call(graph, "exp", _call(graph, "sub", _scores(graph, given), rows, overload="Tensor"))
    of_value = _call(graph, "matmul", _call(graph, "transpose", shares, -2, -1, overload="int"), grad)
    of_shares = _call(graph, "matmul", grad, _call(graph, "transpose", value, -2, -1, overload="int"))
    product = _call(graph, "mul", grad, out, overload="Tensor")
    inner = _call(graph, "sum", product, [-1], True, overload="dim_IntList")
    centred = _call(graph, "sub", of_shares, inner, overload="Tensor")
    of_scores = _call(
        graph, "mul", _call(graph, "mul", shares, centred, overload="Tensor"), _scale(given), overload="Tensor"
    )
    of_query = _call(graph, "matmul", of_scores, key)
    of_key = _call(graph, "matmul", _call(graph, "transpose", of_scores, -2, -1, overload="int"), query)
    return [_narrow(graph, one, like) for one in (of_query, of_key, of_value)]


def _scale(given: dict[str, Any]) -> float:
    return float(given.get("scale") or given["query"].meta["val"].shape[-1] ** -0.5)


def _wide(graph: Graph, node: Node, like: Node) -> Node:
    half = like.meta["val"].dtype in (torch.float16, torch.bfloat16)
    return _call(graph, "to", node, torch.float32, overload="dtype") if half else node


def _narrow(graph: Graph, node: Node, like: Node) -> Node:
    dtype = like.meta["val"].dtype
    return _call(graph, "to", node, dtype, overload="dtype") if dtype in (torch.float16, torch.bfloat16) else node


def _call(graph: Graph, name: str, *args: Any, overload: str = "default", **options: Any) -> Node:
    return graph.call_function(getattr(getattr(torch.ops.aten, name), overload), args, options)


def _bound(node: Node) -> dict[str, Any]:
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
