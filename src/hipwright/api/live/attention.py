"""Attention kernels that PyTorch chose for one device, as the operator that every device has."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

_KINDS = ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")
_CHOSEN = tuple(getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default for kind in _KINDS)


def attention_whole(graph: Graph) -> None:
    """Replaces the kernels of which only the result is read, and not what a backward takes of them. In place."""
    for node in list(graph.nodes):
        if node.target not in _CHOSEN or not all(_is_first(user) for user in node.users):
            continue
        given = _bound(node)
        if given.get("dropout_p"):
            continue
        mask = given.get("attn_mask", given.get("attn_bias"))
        args = (given["query"], given["key"], given["value"], mask, 0.0, bool(given.get("is_causal")))
        with graph.inserting_before(node):
            call = torch.ops.aten.scaled_dot_product_attention.default
            whole = graph.call_function(call, args, {"scale": given.get("scale")})
        for user in list(node.users):
            user.replace_all_uses_with(whole)
            graph.erase_node(user)
        graph.erase_node(node)


def _is_first(user: Node) -> bool:
    return user.target is operator.getitem and user.args[1] == 0


def _bound(node: Node) -> dict[str, Any]:
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}
