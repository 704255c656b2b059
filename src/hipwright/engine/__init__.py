"""The built-in author: a captured graph becomes a program of readable HIP (docs/engine.md). Torch-free.

    author(graph, choices)     Authored              all of the following, made once
    write(graph, choices)      Program               a program for the graph
    space(graph)               {key: Choice}         what search may vary; keys are stable
    explain(graph, choices)    dict                  what became of each operator

This package imports its modules when it first writes a program. Capturing a graph is `hipwright.capture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipwright.capture.graph import Graph
    from hipwright.engine.authoring import Authored
    from hipwright.engine.knobs import Choice, Value
    from hipwright.records import Program


def author(graph: Graph, choices: Mapping[str, Value] | None = None) -> Authored:
    """A program for the graph by these choices, with its space and explanation (engine/authoring.py)."""
    from hipwright.engine import authoring

    return authoring.author(graph, choices)


def write(graph: Graph, choices: Mapping[str, Value] | None = None) -> Program:
    """A program for the graph by these choices. Pure and deterministic; choices that do not apply are ignored."""
    return author(graph, choices).program


def space(graph: Graph) -> dict[str, Choice]:
    """What search may vary for this graph; keys are stable."""
    return author(graph).space


def explain(graph: Graph, choices: Mapping[str, Value] | None = None) -> dict[str, Any]:
    """What became of each operator of the graph by these choices (`Authored.explanation`)."""
    return author(graph, choices).explanation


__all__ = ["author", "explain", "space", "write"]
