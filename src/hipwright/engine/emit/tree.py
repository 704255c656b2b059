"""A kernel as a tree of statements, braced blocks, preprocessor conditionals and sections, printed once.

A statement records the identifiers in it when it is built. From them follow which declarations a block drops and which
parameters a kernel takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_WORD = re.compile(r"\w+")
INDENT = "    "


def words(text: str) -> frozenset[str]:
    """The identifiers and numbers in a text."""
    return frozenset(_WORD.findall(text))


@dataclass(eq=False)
class Statement:
    """One line. `declares`: the name that it declares if it is to be dropped where nothing after it uses the name."""

    text: str
    declares: str = ""
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = words(self.text)

    def lines(self, depth: int) -> list[str]:
        """The printed lines at a depth of indentation."""
        return [INDENT * depth + self.text if self.text else ""]

    def used(self, after: frozenset[str]) -> frozenset[str]:
        """The names used here or `after`."""
        return self.names | after


@dataclass(eq=False)
class Passage(Statement):
    """Several lines of C, indented as a whole; preprocessor lines that begin at the margin stay there."""

    def lines(self, depth: int) -> list[str]:
        """The printed lines at a depth of indentation."""
        return [line if not line or line.startswith("#") else INDENT * depth + line for line in self.text.split("\n")]


@dataclass(eq=False)
class Section:
    """A place among statements that may be filled later."""

    nodes: list[Node] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Add a line to the section."""
        self.nodes.append(Statement(text))

    def lines(self, depth: int) -> list[str]:
        """The printed lines at a depth of indentation."""
        return printed(self.nodes, depth)

    def used(self, after: frozenset[str]) -> frozenset[str]:
        """The names used here or `after`."""
        return drop_unused(self.nodes, after)


@dataclass(eq=False)
class BracedBlock:
    """`header { ... }`, with further arms such as `else`; suffix: what follows the last brace."""

    arms: list[tuple[Statement, list[Node]]]
    suffix: str = ""

    def lines(self, depth: int) -> list[str]:
        """The printed lines at a depth of indentation."""
        out: list[str] = []
        for number, (header, body) in enumerate(self.arms):
            head = f"{'} ' if number else ''}{header.text}{' ' if header.text else ''}{{"
            out += [INDENT * depth + head, *printed(body, depth + 1)]
        return [*out, INDENT * depth + "}" + self.suffix]

    def used(self, after: frozenset[str]) -> frozenset[str]:
        """The names used here or `after`; what is declared inside is not visible behind the block."""
        for header, body in self.arms:
            after |= header.names | drop_unused(body, frozenset())
        return after


@dataclass(eq=False)
class PreprocessorBranch:
    """`#if ... #else ... #endif`; its arms are (directive, nodes), at the depth of what surrounds them."""

    arms: list[tuple[Statement, list[Node]]]

    def lines(self, depth: int) -> list[str]:
        """The printed lines at a depth of indentation; directives stand at the margin."""
        out: list[str] = []
        for directive, body in self.arms:
            out += [directive.text, *printed(body, depth)]
        return [*out, "#endif"]

    def used(self, after: frozenset[str]) -> frozenset[str]:
        """The names used here or `after`."""
        return after.union(*(directive.names | drop_unused(body, after) for directive, body in self.arms))


Node = Statement | Section | BracedBlock | PreprocessorBranch


def printed(nodes: Sequence[Node], depth: int) -> list[str]:
    """The lines of nodes at a depth of indentation."""
    return [line for node in nodes for line in node.lines(depth)]


def drop_unused(nodes: list[Node], after: frozenset[str]) -> frozenset[str]:
    """Drop the declarations whose name nothing behind them uses; returns the names used in the nodes or `after`."""
    for at in reversed(range(len(nodes))):
        node = nodes[at]
        if isinstance(node, Statement) and node.declares and node.declares not in after:
            del nodes[at]
        else:
            after = node.used(after)
    return after
