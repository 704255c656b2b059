"""What a traced graph takes for granted of layouts: another device's operators lay their results out otherwise."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

_READ_BY_ADDRESS = {
    torch.ops.aten.native_layer_norm_backward.default: (3, 4),
    torch.ops.aten.native_group_norm_backward.default: (2, 3),
}
"""Places of the mean and the reciprocal deviation, which PyTorch 2.13 takes to be contiguous on a CPU."""


def statistics_contiguous(graph: Graph) -> None:
    """Makes these arguments contiguous, so that the operators compute the same values in every layout. In place."""
    for node in list(graph.nodes):
        for place in _READ_BY_ADDRESS.get(node.target, ()):
            given = node.args[place]
            assert isinstance(given, Node)
            with graph.inserting_before(node):
                laid = graph.call_function(torch.ops.aten.contiguous.default, (given,))
            laid.meta.update(given.meta)
            node.update_arg(place, laid)


def views_in_any_layout(graph: Graph) -> None:
    """Makes views reshapes, which copy where they have to. In place.

    A reshape is traced as a view where the result that it reshapes is laid out for it on the tracing device: an
    attention's is in another order of dimensions on another.
    """
    for node in graph.nodes:
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
