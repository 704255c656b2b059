"""The plan of a stand-alone source in its own comments: `// hipwright: y = softmax(x, self.scale)`, a statement a line.

The lines are the body of the plan's forward (docs/program.md), whose parameters are those of the task's. A call of a
host function of the file is inlined, `kernel[grid, block](...)` launches one of its kernels. Knobs and constants, whose
names begin with a capital letter, are those of the program.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from hipwright import syntax
from hipwright.program.convert.cpp_text import Inconvertible

_LINE = re.compile(r"^[ \t]*//[ \t]*hipwright:[ \t]?(?P<text>.*?)[ \t]*$")
_TOP = re.compile(r"(?P<name>[A-Z]\w*)\s*=")


@dataclass(frozen=True)
class PlanComment:
    """The lines of a plan: of forward's body, and of the program's top level. Each has its line in the file."""

    body: tuple[tuple[int, str], ...] = ()
    top: tuple[tuple[int, str], ...] = ()

    @property
    def named(self) -> dict[str, int]:
        """The names of knobs and constants, each with its line."""
        return {match["name"]: line for line, text in self.top if (match := _TOP.match(text))}


def plan_comment(text: str) -> PlanComment:
    """The plan's lines in a source; without any, an empty one."""
    found = [(number, match["text"]) for number, line in enumerate(text.split("\n"), 1) if (match := _LINE.match(line))]
    top = tuple(one for one in found if _TOP.match(one[1]))
    return PlanComment(tuple(one for one in found if one not in top), top)


def plan_class(body: Sequence[tuple[int, str]], parameters: Sequence[str]) -> ast.ClassDef:
    """A class ModelNew whose forward has the lines as its body; every node has its line in the file.

    Raises Inconvertible for lines that are no Python.
    """
    arguments = ", ".join(["self", *parameters])
    statements = textwrap.indent(textwrap.dedent("\n".join(text for _, text in body)), "        ")
    try:
        tree = syntax.parse(f"class ModelNew:\n    def forward({arguments}):\n{statements}\n")
    except (SyntaxError, ValueError) as error:
        at = int(getattr(error, "lineno", 0) or 0) - 3
        line = body[min(max(at, 0), len(body) - 1)][0]
        raise Inconvertible(f"the plan's line is not Python: {getattr(error, 'msg', error)}", line) from None
    owner = tree.body[0]
    assert isinstance(owner, ast.ClassDef)
    for node in ast.walk(owner):
        at = getattr(node, "lineno", 0) - 3
        if isinstance(node, (ast.stmt, ast.expr)) and 0 <= at < len(body):
            node.lineno = body[at][0]
    return owner
