"""Control flow of C++ host statements: the names that they assign, and whether they return."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.program.convert.cpp_expression_parser import Node


def assigned(nodes: Sequence[Node]) -> list[str]:
    """Names that statements assign, at any depth, in order."""
    found: dict[str, None] = {}
    for node in nodes:
        if node[0] == "assign" and node[1][0] == "name":
            found[node[1][1]] = None
        inner = {"if": (2, 3), "for": (4,), "block": (1,)}.get(node[0], ())
        for place in inner:
            found |= dict.fromkeys(assigned(node[place]))
        if node[0] == "expr" and node[1][0] == "call":
            for arg in node[1][2]:
                if arg[0] == "lambda":
                    found |= dict.fromkeys(assigned(arg[1]))
    return list(found)


def returns(node: Node) -> bool:
    """Whether a return stands anywhere inside a statement."""
    if node[0] == "return":
        return True
    inner = {"if": (2, 3), "for": (4,), "block": (1,)}.get(node[0], ())
    return any(returns(n) for place in inner for n in node[place])


def ends(nodes: list[Node]) -> bool:
    """Whether statements always return."""
    if not nodes:
        return False
    last = nodes[-1]
    if last[0] == "if":
        return ends(last[2]) and ends(last[3])
    return last[0] == "return" or (last[0] == "block" and ends(last[1])) or last[0] == "throw"
