"""Chains of operations as statements, one for each operator, inner to outer: a part of the short form (programs.py).

    s.v[k] = relu(gelu(x_tile.v[k] * 2.0f));

becomes

    const auto a = x_tile.v[k] * 2.0f;
    const auto b = gelu(a);
    s.v[k] = relu(b);

A statement is split where it assigns, adds to or declares a floating-point value, stands on a line of its own in a
block, and computes from elements: subscripted values, and names that are declared from such. Where it reads no element
and writes one (`out[row] = relu(s * 0.5f)`), every name that is not of an integer is an element. Operations are + - *
and /, negation, and the functions of the math library and of the device headers' arithmetic. Everything else stays in
place: subscripts, conditions, both sides of ?: && ||, template arguments, casts, other calls, and arithmetic without
elements (`rsqrtf(s / 512.0f + 1e-05f)`). One statement holds both bounds of a clamp, the steps of a normalisation
(`expf(a - s.max) * t2`), and a product that is added up (`s += x[i] * y[i]`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from string import ascii_lowercase

from hipwright.engine.emit.c_names import LIBRARY
from hipwright.engine.emit.device_code import ARITHMETIC, MATH, reserved
from hipwright.program.blanking import blank, blank_directives
from hipwright.program.convert.cpp_expression_parser import ExpressionParser, Node
from hipwright.program.convert.cpp_text import Inconvertible, tokens

NAMES = r"[a-z]{1,2}"
"""What names of intermediate values match; the shortest free ones are taken, from the first in every block."""

_FUNCTIONS = MATH | ARITHMETIC | LIBRARY | {f"{name}f" for name in LIBRARY}
_SCALED = frozenset({"sub_rn", "fast_divide", "divide_approx"})
_CLAMP = frozenset({"nan_min", "nan_max", "fminf", "fmaxf"})
_FLOATS = r"(?:auto|float|double|__half|half|__hip_bfloat16|hip_bfloat16)"
_CONVERSIONS = frozenset({"float", "double", "__half", "half", "__hip_bfloat16", "hip_bfloat16", "T"})
_INTEGERS = r"(?:unsigned|int|long|short|char|bool|size_t|u?int(?:8|16|32|64)_t)"
_INTEGER = re.compile(rf"\b{_INTEGERS}\b(?:, [^;=<>()]*>)?[\s*&]*(?:const\s+|__restrict__\s+)*(\w+)")
_STATEMENT = re.compile(
    rf"(?P<head>(?P<indent>\s+)(?P<type>(?:const )?{_FLOATS} )?(?P<target>\w+)(?P<element>[.\w]*\[[^=;]*\])?[.\w]*"
    r" (?P<op>[-+*/]?=) )(?P<value>[^;{}\"']+);"
)
_WORD = re.compile(r"[A-Za-z_]\w*")


def as_statements(hip: str) -> str:
    """A source with its chains split. What is not understood stays as it is."""
    if "goto" in hip:
        return hip
    taken = {*_WORD.findall(hip), *reserved()}
    return "".join(_Kernel(part, taken).text() for part in re.split(r'^(?=extern "C")', hip, flags=re.MULTILINE))


def _names(taken: set[str]) -> Iterator[str]:
    """Names of intermediate values, shortest first."""
    every = ("".join(letters) for length in (1, 2) for letters in product(ascii_lowercase, repeat=length))
    return (name for name in every if name not in taken)


# ---------------------------------------------------------------- lines


@dataclass
class _Scope:
    """What stands in one pair of braces. block: whether it is a list of statements; values: names of elements."""

    block: bool
    names: Iterator[str]
    values: set[str] = field(default_factory=set)


class _Kernel:
    """Walks the lines of a kernel and of what stands in front of it."""

    def __init__(self, text: str, taken: set[str]) -> None:
        self.lines = text.split("\n")
        self.codes = blank_directives(blank(text)).split("\n")
        self.taken, self.integers = taken, set(_INTEGER.findall(text))
        self.scopes = [_Scope(False, iter(()))]
        self.brackets, self.last, self.opener = 0, "", ""

    def text(self) -> str:
        """The lines, with statements in place of chains."""
        if len(self.lines) != len(self.codes):
            return "\n".join(self.lines)
        out: list[str] = []
        for line, code in zip(self.lines, self.codes, strict=True):
            scope = self.scopes[-1]
            starts = line == code and scope.block and not self.brackets and self.last in ("{", "}", ";")
            found = _STATEMENT.fullmatch(code) if starts else None
            out += self.split(found, scope) if found else [line]
            self.advance(code)
        return "\n".join(out)

    def split(self, found: re.Match[str], scope: _Scope) -> list[str]:
        """The lines of one assignment; just itself where nothing is to be split."""
        if not found["type"] and found["target"] in self.integers - scope.values:
            return [found[0]]
        try:
            chain = _Chain(found["value"], scope.values, self.integers, lambda: next(scope.names))
            if found["type"] and chain.touches(chain.root):
                scope.values.add(found["target"])
            if not chain.computes(element_written=bool(found["element"])):
                return [found[0]]
            last = chain.last(found["op"])
        except (Inconvertible, RecursionError, StopIteration):
            return [found[0]]
        scope.values |= {name for name, _ in chain.made}
        lines = [f"{found['indent']}const auto {name} = {text};" for name, text in chain.made]
        return [*lines, f"{found['head']}{last};"]

    def advance(self, code: str) -> None:
        """Follows braces and brackets to the end of a line."""
        for letter in code:
            if letter == "{":
                self.scopes.append(_Scope(self.opens_block(), _names(self.taken), set(self.scopes[-1].values)))
            elif letter == "}" and len(self.scopes) > 1:
                self.scopes.pop()
            self.brackets += (letter in "([") - (letter in ")]")
            self.opener = "" if letter in "{};" else self.opener + letter
            self.last = self.last if letter.isspace() else letter
        self.opener += "\n"

    def opens_block(self) -> bool:
        """Whether the brace at the cursor opens statements: of a function, a loop, a branch, or bare ones."""
        opener = self.opener.strip()
        if not opener:
            return self.scopes[-1].block and self.last in ("{", "}", ";")
        return bool(re.search(r"(?:\)|\belse|\bdo)\Z", opener)) and not re.search(r"\bswitch\b", opener)


# ---------------------------------------------------------------- expressions


class _SpanParser(ExpressionParser):
    """Notes the tokens of every node, brackets around it included, and how many brackets there are."""

    def __init__(self, code: str) -> None:
        super().__init__(tokens(code))
        self.spans: dict[int, tuple[int, int]] = {}
        self.bracketed: Counter[int] = Counter()

    def _noted(self, read: Callable[[], Node]) -> Node:
        start, bracket = self.at, self.peek() == "("
        node = read()
        if bracket and self.spans.get(id(node), (0, 0))[0] == start + 1:
            self.bracketed[id(node)] += 1
        self.spans[id(node)] = (start, self.at)
        return node

    def expression(self) -> Node:
        return self._noted(super().expression)

    def binary(self, level: int) -> Node:
        """Parses as the base class does."""
        return self._noted(lambda: super(_SpanParser, self).binary(level))

    def unary(self) -> Node:
        return self._noted(super().unary)

    def primary(self) -> Node:
        return self._noted(super().primary)


class _Chain:
    """An expression that is split. made: (name, text) of each intermediate value."""

    def __init__(self, code: str, values: set[str], integers: set[str], fresh: Callable[[], str]) -> None:
        self.code, self.fresh = code, fresh
        self.made: list[tuple[str, str]] = []
        self.values, self.integers, self.any_name = values, integers - values, False
        self.parser = _SpanParser(code)
        self.root = self.parser.expression()
        if self.parser.peek():
            raise Inconvertible("more than an expression")
        self.places: list[tuple[int, int]] = []
        at = 0
        for token in self.parser.tokens:
            at = code.index(token.text, at)
            self.places.append((at, at + len(token.text)))
            at += len(token.text)

    def computes(self, *, element_written: bool) -> bool:
        """Whether the expression computes from elements."""
        if not self.touches(self.root):
            self.any_name = element_written
        return self.touches(self.root)

    def last(self, assignment: str) -> str:
        """The expression of the last statement, which `=` or `+=` stands in front of."""
        operation = assignment.removesuffix("=")
        return self.placed(self.root, ("assigned", operation) if operation else None)

    # ------------------------------------------------------------ texts

    def rendered(self, node: Node, around: Node | None) -> str:
        """The text of a node. around: the operation around it."""
        start, end = self.span(node)
        text = ""
        for part in self.parts(node):
            first, after = self.span(part)
            text += self.code[start:first] + self.placed(part, node if self.operation(node) else around)
            start = after
        return text + self.code[start:end]

    def placed(self, node: Node, around: Node | None) -> str:
        """The text of a part: the name of an intermediate value where it is a step of its own."""
        text = self.rendered(node, around)
        if around is None or not self.operation(node) or not self.touches(node) or self.joined(around, node):
            return text
        for _ in range(self.parser.bracketed[id(node)]):
            text = text[1:-1].strip()
        self.made.append((name := self.fresh(), text))
        return name

    def span(self, node: Node) -> tuple[int, int]:
        """Where a node stands in the code; a left part of a binary node begins and ends with its own parts."""
        if id(node) in self.parser.spans:
            first, after = self.parser.spans[id(node)]
            return self.places[first][0], self.places[after - 1][1]
        return self.span(node[2])[0], self.span(node[3])[1]

    # ------------------------------------------------------------ questions

    def parts(self, node: Node) -> list[Node]:
        """What may be a statement of its own within a node."""
        if self.operation(node):
            return list(node[2] if node[0] == "call" else node[2:])
        if node[0] == "cast":
            return [node[2]]
        return list(node[2]) if _converts(node) else []

    def operation(self, node: Node) -> bool:
        """Whether a node is an operation of values."""
        if node[0] == "call":
            return node[1][0] == "name" and node[1][1] in _FUNCTIONS
        return node[0] in ("binary", "unary") and node[1] in ("+", "-", "*", "/") and node[:2] != ("unary", "*")

    def touches(self, node: object) -> bool:
        """Whether an element is read."""
        if isinstance(node, list):
            return any(map(self.touches, node))
        if not isinstance(node, tuple):
            return False
        if node[0] == "lambda":
            raise Inconvertible("a lambda")
        if node[0] == "name":
            return node[1] in self.values or (self.any_name and node[1] not in self.integers and not node[1].isupper())
        if node[0] == "call" and node[1][0] == "name":
            return self.touches(node[2])
        if node[0] == "index":
            return _base(node) not in self.integers
        return any(map(self.touches, node[1:]))

    def joined(self, around: Node, node: Node) -> bool:
        """Whether two operations are one operator: bounds of a clamp, steps of a normalisation, a sum of products."""
        if around == ("assigned", "+") and node[:2] == ("binary", "*"):
            return not any(self.operation(_bare(part)) for part in self.parts(node))
        if all(one[0] == "call" and one[1][1] in _CLAMP and _literal(one[2][-1]) for one in (around, node)):
            return True
        return self.of_row(around) and self.of_row(node)

    def of_row(self, node: Node) -> bool:
        """Whether an operation has a value of the row (no element, no literal) beside an element, or is the
        exponential of such a one."""
        node = _bare(node)
        if node[0] == "call" and node[1][0] == "name" and node[1][1].startswith("exp") and len(node[2]) == 1:
            return self.of_row(node[2][0])
        scales = node[0] == "binary" or (node[0] == "call" and node[1][1] in _SCALED)
        if not self.operation(node) or not scales:
            return False
        parts = self.parts(node)
        touching = list(map(self.touches, parts))
        return any(touching) and any(
            not touched and not _literal(part) for part, touched in zip(parts, touching, strict=True)
        )


def _base(node: Node) -> str:
    """The name that subscripts and members follow."""
    while node[0] in ("index", "member"):
        node = node[1]
    return str(node[1]) if node[0] == "name" else ""


def _converts(node: Node) -> bool:
    """Whether a node is a conversion in the form of a call: __half(x)."""
    if node[0] == "make":
        return node[1] in _CONVERSIONS and len(node[2]) == 1
    return node[0] == "call" and node[1][0] == "name" and node[1][1] in _CONVERSIONS and len(node[2]) == 1


def _bare(node: Node) -> Node:
    """A node without conversions around it."""
    while node[0] == "cast" or _converts(node):
        node = node[2] if node[0] == "cast" else node[2][0]
    return node


def _literal(node: Node) -> bool:
    node = _bare(node)
    return bool(node[0] == "num" or (node[0] == "unary" and node[2][0] == "num"))


__all__ = ["NAMES", "as_statements"]
