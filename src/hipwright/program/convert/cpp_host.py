"""C++ host functions -> statements of a plan: checks, sizes, allocations, launches, returns.

Each call of a host function is written out where it stands, since a plan has no functions. An early return becomes the
other branch of its `if`. Launched kernels are noted, with their template arguments, for `cuda_device`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hipwright.program.convert.cpp_flow import ends, returns
from hipwright.program.convert.cpp_parse import Node, Parser
from hipwright.program.convert.cpp_statements import Launched, Statements
from hipwright.program.convert.cpp_text import CppItem, ExtensionSource, Inconvertible, tokens, without_template
from hipwright.program.convert.host_value import NONE, HostValue, kind_of, of_type
from hipwright.program.convert.plan_writer import PlanLines

_DEPTH = 8


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


class HostTranslator(Statements):
    """Writes out calls of the host functions of one extension."""

    def __init__(self, source: ExtensionSource, writer: PlanLines, launched: Launched) -> None:
        self.source = source
        self.writer = writer
        self.launched = launched
        self.functions = source.functions("host") | {
            k: v for k, v in source.functions("device").items() if "__host__" in v.head or "__device__" not in v.head
        }
        self.env: dict[str, HostValue] = {}
        self.types: dict[str, str] = {}
        self.depth = 0
        self.literals: dict[str, str] = {}  # locals that are a number and were not assigned again
        self.own: set[str] = set()  # locals of the call being written, which it may assign again
        self.globals = self.constants()

    def constants(self) -> dict[str, HostValue]:
        """Constants and aliases at the top level of the source."""
        found: dict[str, HostValue] = {}
        self.env = found
        for item in self.source.items:
            if item.kind != "other" or "__device__" in item.text or "__constant__" in item.text:
                continue
            try:
                node = Parser(tokens(item.text, self.source.macros)).statement()
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
        """Write out a helper that host code calls."""
        item = self.functions.get(name.split("::")[-1])
        if item is None:
            return None
        return self.run(item, [self.value(a) for a in args])

    def run(self, item: CppItem, args: Sequence[HostValue]) -> HostValue:
        """Write out one call with these arguments; its value."""
        if without_template(item.head)[0]:
            raise Inconvertible(f"{item.name} is a template")
        if self.depth >= _DEPTH:
            raise Inconvertible(f"{item.name} calls itself")
        params = parameters(item.head)
        if len(args) > len(params):
            raise Inconvertible(f"{item.name} takes {len(params)} arguments, not {len(args)}")
        outer = self.env, self.types, self.own
        self.env, self.types, self.own = dict(self.globals), dict(self.types), set()
        try:
            for (ctype, name), arg in zip(params, [*args, *self.defaults(item, len(args))], strict=True):
                self.env[name] = self.taken(ctype, arg)
            self.depth += 1
            body = Parser(tokens(item.body, self.source.macros)).block()
            return self.body(body, item.name)
        finally:
            self.depth -= 1
            self.env, self.types, self.own = outer

    def defaults(self, item: CppItem, given: int) -> list[HostValue]:
        """Values of trailing parameters that have a default."""
        texts = re.findall(r"(\w+)\s*=\s*([^,()]+)", item.head)
        missing = parameters(item.head)[given:]
        known = dict(texts)
        if any(name not in known for _, name in missing):
            raise Inconvertible(f"{item.name} is called with too few arguments")
        return [self.value(Parser(tokens(known[name])).expression()) for _, name in missing]

    def taken(self, ctype: str, arg: HostValue) -> HostValue:
        """An argument as its parameter's type."""
        kind = kind_of(ctype, self.types)
        if kind == "any":
            raise Inconvertible(f"a parameter of type {ctype}")
        if arg.kind == "any":
            return HostValue(kind, arg.text)
        if kind in ("int", "float", "bool"):
            return self.number_as(arg, of_type(ctype, self.types))
        return arg

    def body(self, nodes: list[Node], name: str) -> HostValue:
        """Write the statements of a function; its value."""
        if nodes and nodes[-1][0] == "return" and not any(map(returns, nodes[:-1])):
            for node in nodes[:-1]:
                self.statement(node)
            return NONE if nodes[-1][1] is None else self.returned(nodes[-1][1])
        if not any(map(returns, nodes)):
            for node in nodes:
                self.statement(node)
            return NONE
        result = self.writer.fresh(f"{name}_result")
        kinds: list[HostValue] = []
        self.branching(nodes, result, kinds)
        if len({v.kind for v in kinds}) != 1:
            raise Inconvertible(f"{name} returns values of different kinds")
        return HostValue(kinds[0].kind, result)

    def returned(self, node: Node) -> HostValue:
        """A returned value; braces are a tuple."""
        return self.value(node)

    def branching(self, nodes: list[Node], result: str, kinds: list[HostValue]) -> None:
        """Statements of which an `if` returns: what follows it moves into the other branch."""
        for index, node in enumerate(nodes):
            if node[0] == "return":
                value = NONE if node[1] is None else self.returned(node[1])
                kinds.append(value)
                self.writer.line(f"{result} = {value.text}")
                return
            if node[0] == "block" and returns(node):
                self.branching([*node[1], *nodes[index + 1 :]], result, kinds)
                return
            if node[0] == "if" and returns(node):
                rest = nodes[index + 1 :]
                self.fork(
                    node,
                    [*node[2], *rest] if not ends(node[2]) else node[2],
                    [*node[3], *rest] if not ends(node[3]) else node[3],
                    lambda part: self.branching(part, result, kinds),
                )
                return
            if returns(node):
                raise Inconvertible("a return inside a loop")
            self.statement(node)
        kinds.append(NONE)
        self.writer.line(f"{result} = None")
