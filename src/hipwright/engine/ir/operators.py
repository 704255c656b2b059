"""The engine's own operators: rewrites insert them for patterns of a graph, call templates write them."""

from __future__ import annotations

ATTENTION = "hip.attention"
"""Attention that a module writes out (rewrite/attention.py): q, k, v and the scores as a function of the product."""
RECURRENT_LAYER = "hip.recurrent_layer"
"""One layer of an LSTM, GRU or plain recurrent network over all steps."""
ROW_RUNS = "hip.row_runs"
"""Sums of the runs of values that belong to each row of a compressed matrix: x, where the rows begin, the values."""
STORED = "hip.stored"
"""A tensor in memory in the order of its dimensions, for what reads it several times along the last one."""
