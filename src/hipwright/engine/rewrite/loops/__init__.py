"""Loops that tracing wrote out become loops again: one node with the graph of one step."""
