"""Operators of the engine's own, which rewrites put in the place of patterns and templates write."""

from __future__ import annotations

ATTENTION = "hip.attention"
"""Attention that a module writes out (rewrite/attention.py): q, k, v and the scores as a function of the product."""
RECURRENT_LAYER = "hip.recurrent_layer"
"""One layer of an LSTM, GRU or plain recurrent network over all steps."""
