"""Converts C++ host functions to statements of a plan: checks, sizes, allocations, launches, returns.

Calls of host functions are inlined, since a plan has no functions. The statements after an early return become the
other branch of its `if`. Launched kernels and their template arguments are recorded for `cuda_device`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hipwright.program.convert.cpp_expression_parser import Node
from hipwright.program.convert.cpp_flow import ends, returns
from hipwright.program.convert.cpp_parse import CppParser
from hipwright.program.convert.cpp_statements import HostStatementConverter, LaunchKernel
from hipwright.program.convert.cpp_text import CppItem, ExtensionSource, Inconvertible, tokens, without_template
from hipwright.program.convert.host_value import NONE, STREAM, HostValue, kind_of, of_type
from hipwright.program.convert.plan_writer import PlanLines

_DEPTH = 8
STREAM_TYPE = re.compile(r"(?:cuda|hip)Stream_t\b")
"""The type of a parameter that a plan has no argument for: the launcher has its own stream."""


def parameters(head: str) -> list[tuple[str, str]]:
    """(type, name) of a host function's parameters."""
    _, plain = without_template(head)
    name = re.search(r"[A-Za-z_]\w*\s*\(", plain)
    assert name is not None
    depth, found, start = 0, [], name.end()
    text = plain[start : plain.rindex(")")]
    part = ""
    for ch in text + ",":
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(ch, 0)
        if ch == "," and depth == 0:
            if part.strip() and part.strip() != "void":
                match = re.fullmatch(r"\s*(.*?[\s*&>])\s*(\w+)\s*(?:=.*)?", part, re.DOTALL)
                if match is None:
                    raise Inconvertible(f"the parameter {part.strip()}")
                found.append((re.sub(r"\bconst\b|[&\s]+$|^\s+", "", match[1]).strip(" &"), match[2]))
            part = ""
        else:
            part += ch
    return found


class HostTranslator(HostStatementConverter):
    """Inlines calls of the host functions of one extension."""

    def __init__(self, source: ExtensionSource, writer: PlanLines, launched: LaunchKernel) -> None:
        self.source = source
        self.writer = writer
        self.launched = launched
        self.functions = source.functions("host") | {
            k: v for k, v in source.functions("device").items() if "__host__" in v.head or "__device__" not in v.head
        }
        self.env: dict[str, HostValue] = {}
        self.types: dict[str, str] = {}
        self.depth = 0
        self.literals: dict[str, str] = {}  # locals that hold a literal and were not reassigned
        self.own: set[str] = set()  # locals of the call being written, which it may reassign
        self.globals = self.constants()

    def constants(self) -> dict[str, HostValue]:
        """Constants and aliases at the top level of the source."""
        found: dict[str, HostValue] = {}
        self.env = found
        for item in self.source.items:
            if item.kind != "other" or "__device__" in item.text or "__constant__" in item.text:
                continue
            try:
                node = CppParser(tokens(item.text, self.source.macros)).statement()
                if node[0] == "alias":
                    self.types[node[1]] = of_type(node[2], self.types)
                elif node[0] == "decl":
                    for name, _, _, args in node[2]:
                        value = self.value(args[0])
                        if value.kind in ("int", "float", "bool"):
                            found[name] = self.number_as(value, of_type(node[1], self.types))
            except (Inconvertible, IndexError):
                continue
        return found

    # ------------------------------------------------------------ functions

    def call_own(self, name: str, args: Sequence[Node]) -> HostValue | None:
        """Inlines a helper that host code calls; None when there is none of that name."""
        item = self.functions.get(name.split("::")[-1])
        if item is None:
            return None
        return self.run(item, [self.value(a) for a in args])

    def run(self, item: CppItem, args: Sequence[HostValue]) -> HostValue:
        """Inlines one call with these arguments; returns its value."""
        if without_template(item.head)[0]:
            raise Inconvertible(f"{item.name} is a template", item.line)
        if self.depth >= _DEPTH:
            raise Inconvertible(f"{item.name} calls itself", item.line)
        params = parameters(item.head)
        if len(args) > len(params):
            raise Inconvertible(f"{item.name} takes {len(params)} arguments, not {len(args)}")
        outer = self.env, self.types, self.own
        self.env, self.types, self.own = dict(self.globals), dict(self.types), set()
        try:
            for (ctype, name), arg in zip(params, [*args, *self.defaults(item, len(args))], strict=True):
                self.env[name] = self.argument_as(ctype, arg)
            self.depth += 1
            body = CppParser(tokens(item.body, self.source.macros, item.body_line)).block()
            return self.body(body, item.name)
        finally:
            self.depth -= 1
            self.env, self.types, self.own = outer

    def defaults(self, item: CppItem, given: int) -> list[HostValue]:
        """Values of trailing parameters that have a default."""
        texts = re.findall(r"(\w+)\s*=\s*([^,()]+)", item.head)
        missing = parameters(item.head)[given:]
        known = dict(texts)
        if any(name not in known and not STREAM_TYPE.search(ctype) for ctype, name in missing):
            raise Inconvertible(f"{item.name} is called with too few arguments")
        return [
            STREAM if STREAM_TYPE.search(ctype) else self.value(CppParser(tokens(known[name])).expression())
            for ctype, name in missing
        ]

    def argument_as(self, ctype: str, arg: HostValue) -> HostValue:
        """Converts an argument to its parameter's type."""
        if STREAM_TYPE.search(ctype):
            return STREAM
        kind = kind_of(ctype, self.types)
        if kind == "any":
            raise Inconvertible(f"a parameter of type {ctype}")
        if arg.kind == "any":
            return HostValue(kind, arg.text)
        if kind in ("int", "float", "bool"):
            return self.number_as(arg, of_type(ctype, self.types))
        return arg

    def body(self, nodes: list[Node], name: str) -> HostValue:
        """Writes the statements of a function; returns its value."""
        if nodes and nodes[-1][0] == "return" and not any(map(returns, nodes[:-1])):
            for node in nodes[:-1]:
                self.statement(node)
            return NONE if nodes[-1][1] is None else self.value(nodes[-1][1])
        if not any(map(returns, nodes)):
            for node in nodes:
                self.statement(node)
            return NONE
        result = self.writer.fresh(f"{name}_result")
        values: list[HostValue] = []
        self.early_returns(nodes, result, values)
        if len({v.kind for v in values}) != 1:
            raise Inconvertible(f"{name} returns values of different kinds")
        return HostValue(values[0].kind, result)

    def early_returns(self, nodes: list[Node], result: str, values: list[HostValue]) -> None:
        """Writes statements in which an `if` returns: the statements after it move into the other branch."""
        for index, node in enumerate(nodes):
            if node[0] == "return":
                value = NONE if node[1] is None else self.value(node[1])
                values.append(value)
                self.writer.line(f"{result} = {value.text}")
                return
            if node[0] == "block" and returns(node):
                self.early_returns([*node[1], *nodes[index + 1 :]], result, values)
                return
            if node[0] == "if" and returns(node):
                rest = nodes[index + 1 :]
                self.branch(
                    node,
                    [*node[2], *rest] if not ends(node[2]) else node[2],
                    [*node[3], *rest] if not ends(node[3]) else node[3],
                    lambda part: self.early_returns(part, result, values),
                )
                return
            if returns(node):
                raise Inconvertible("a return inside a loop")
            self.statement(node)
        values.append(NONE)
        self.writer.line(f"{result} = None")
