"""Reads C++ expressions of kernels into `KernelExpression` trees; what is not understood becomes opaque."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from hipwright.verify.admitted.expressions import UNKNOWN, KernelExpression, named, node, number

KernelToken = tuple[str, int]
"""(text, position in the blanked source)."""
TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][0-9a-fA-F']+[uUlL]*|(?:\d[\d']*\.?[\d']*|\.\d+)(?:[eE][+-]?\d+)?[uUlLfF]*"
    r"|<<=|>>=|->|\+\+|--|[-+*/%&|^=!<>]=|&&|\|\||::|<<|\S"
)
ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))
_LEVELS = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    "==": 6,
    "!=": 6,
    "<": 7,
    ">": 7,
    "<=": 7,
    ">=": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "%": 10,
}
_INTEGER_WORDS = "int unsigned signed long short char bool size_t const auto constexpr"
_FIXED_WIDTHS = "int64_t int32_t uint32_t uint64_t int16_t uint16_t int8_t uint8_t"
_INTEGER_TYPES = frozenset((*_INTEGER_WORDS.split(), *_FIXED_WIDTHS.split()))
_TYPES = _INTEGER_TYPES | frozenset(("float", "double", "half", "__half", "void", "volatile"))
_CASTS = frozenset(("static_cast", "reinterpret_cast", "const_cast"))
_ROOTS = frozenset(("threadIdx", "blockIdx", "blockDim", "gridDim"))
_FUNCTIONS = frozenset(("min", "max", "abs"))
_DEEPEST = 60
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F']+|\d[\d']*)[uUlL]*\Z")


class FunctionReader(Protocol):
    """What a parser asks of the function that it reads for."""

    env: dict[str, KernelExpression]

    def template(self, name: str) -> bool:
        """Whether `name<` starts template arguments."""

    def called(
        self, name: str, templates: Sequence[KernelExpression], args: Sequence[KernelExpression]
    ) -> KernelExpression:
        """The value of a call of one of the program's functions."""


class KernelExpressionParser:
    """Precedence climbing over tokens[at:end]."""

    def __init__(self, tokens: Sequence[KernelToken], at: int, end: int, reader: FunctionReader) -> None:
        self.tokens, self.at, self.end, self.reader = tokens, at, end, reader
        self.depth = 0

    def peek(self, ahead: int = 0) -> str:
        """A token's text, "" after the last."""
        place = self.at + ahead
        return self.tokens[place][0] if place < self.end else ""

    def expression(self, level: int = 0) -> KernelExpression:
        """An expression, with the choice ?: and assignments at level 0."""
        self.depth += 1
        try:
            if self.depth > _DEEPEST:
                self.at = self.end
                return UNKNOWN
            left = self.unary()
            while (found := _LEVELS.get(op := self.operator())) is not None and found > level:
                self.at += 2 if op == ">>" else 1
                right = self.expression(found)
                left = node("logical" if op in ("&&", "||") else "binary", op, left, right)
            return self.choice(left) if level == 0 else left
        finally:
            self.depth -= 1

    def operator(self) -> str:
        """The operator at the cursor; >> comes as two tokens, since it may close template arguments."""
        op = self.peek()
        return ">>" if op == ">" and self.peek(1) == ">" and self.close() else op

    def close(self) -> bool:
        """Whether the two tokens at the cursor touch."""
        return self.tokens[self.at + 1][1] == self.tokens[self.at][1] + 1

    def choice(self, test: KernelExpression) -> KernelExpression:
        """The rest of `test ? a : b`, or of an assignment inside an expression."""
        if self.peek() == "?":
            self.at += 1
            yes = self.expression()
            self.at += self.peek() == ":"
            return node("choice", "", test, yes, self.expression())
        if self.peek() in ASSIGNMENTS:
            self.at += 1
            return node("opaque", "", test, self.expression())
        return test

    def unary(self) -> KernelExpression:
        """A prefix operator, a cast or a postfix expression."""
        op = self.peek()
        if op in ("-", "!", "+", "~", "*", "&", "++", "--"):
            self.at += 1
            self.depth += 1
            inner = self.unary() if self.depth <= _DEEPEST else UNKNOWN
            self.depth -= 1
            kind = {"-": "negative", "!": "not"}.get(op)
            return inner if op == "+" else node(kind or "opaque", "", inner)
        if op == "(" and (cast := self.cast()) is not None:
            return cast
        return self.postfix(self.primary())

    def cast(self) -> KernelExpression | None:
        """(type) x; None where the bracket holds no type."""
        place = self.at + 1
        words: list[str] = []
        while place < self.end and (word := self.tokens[place][0]) != ")" and len(words) < 6:
            words.append(word)
            place += 1
        if not words or not set(words) & _TYPES or not all(w in _TYPES or w in ("*", "&") for w in words):
            return None
        self.at = place + 1
        inner = self.unary()
        return inner if set(words) <= _INTEGER_TYPES else node("opaque", "", inner)

    def primary(self) -> KernelExpression:
        """A number, a name or a bracket."""
        text = self.peek()
        self.at += 1
        if text[:1].isdigit():
            match = _INTEGER.match(text)
            if match is None:
                return UNKNOWN
            return number(_integer(match[1].replace("'", "")))
        if text == "(":
            inner = self.expression()
            while self.peek() == ",":
                self.at += 1
                inner = node("opaque", "", inner, self.expression())
            self.at += self.peek() == ")"
            return inner
        if text in ("{", "["):
            self.at -= 1
            return node("opaque", "", *self.listed("}" if text == "{" else "]"))
        return self.name(text) if text[:1].isalpha() or text[:1] == "_" else UNKNOWN

    def name(self, text: str) -> KernelExpression:
        """A name, a call, or an index of threads or blocks."""
        if text in ("true", "false"):
            return number(int(text == "true"))
        if text in _ROOTS and self.peek() == ".":
            axis = self.peek(1)
            self.at += 2
            return named(f"{text}.{axis}")
        while self.peek() == "::":
            text = self.peek(1)
            self.at += 2
        templates: list[KernelExpression] = []
        if self.peek() == "<" and (text in _CASTS or self.reader.template(text)):
            words = self.template_arguments(templates)
            if text in _CASTS:
                inner = self.expression_in_brackets()
                return inner if set(words) <= _INTEGER_TYPES else node("opaque", "", inner)
        if self.peek() == "(":
            args = self.listed(")")
            if text in _FUNCTIONS:
                return node("call", text, *args)
            if text in _INTEGER_TYPES and len(args) == 1:
                return args[0]
            value = self.reader.called(text, templates, args)
            return value if value.known else node("opaque", text, *args)
        return self.reader.env.get(text, UNKNOWN)

    def expression_in_brackets(self) -> KernelExpression:
        """( expression )."""
        parts = self.listed(")") if self.peek() == "(" else []
        return parts[0] if len(parts) == 1 else UNKNOWN

    def template_arguments(self, into: list[KernelExpression]) -> list[str]:
        """Reads < ... >; returns its words, and puts the value of each argument into a list."""
        self.at += 1
        start, depth, first = self.at, 1, self.at
        while self.at < self.end and depth:
            text = self.peek()
            depth += (text in ("<", "(")) - (text in (">", ")"))
            if (text == "," and depth == 1) or depth == 0:
                part = KernelExpressionParser(self.tokens, first, self.at, self.reader)
                into.append(part.expression() if first < self.at else UNKNOWN)
                first = self.at + 1
            self.at += 1
        return [token[0] for token in self.tokens[start : self.at - 1]]

    def listed(self, closing: str) -> list[KernelExpression]:
        """Expressions between brackets, the first of which is at the cursor."""
        self.at += 1
        items: list[KernelExpression] = []
        while self.at < self.end and self.peek() != closing:
            before = self.at
            items.append(self.expression())
            self.at += self.peek() == "," or self.at == before
        self.at += 1
        return items

    def postfix(self, left: KernelExpression) -> KernelExpression:
        """Indices, members, calls and increments after an expression."""
        while True:
            text = self.peek()
            if text == "[":
                left = node("opaque", "", left, *self.listed("]"))
            elif text in (".", "->"):
                self.at += 2
                left = node("opaque", "", left)
            elif text in ("(", "{"):
                left = node("opaque", "", left, *self.listed(")" if text == "(" else "}"))
            elif text in ("++", "--"):
                self.at += 1
                left = node("opaque", "", left)
            else:
                return left


def _integer(digits: str) -> int:
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    octal = digits[0] == "0" and set(digits) <= set("01234567")
    return int(digits, 8 if octal else 10)


def expanded(
    tokens: Sequence[KernelToken], macros: Mapping[str, tuple[tuple[str, ...] | None, str]], depth: int = 0
) -> list[KernelToken]:
    """The tokens with the program's macros replaced; each keeps the position of the macro's use."""
    out: list[KernelToken] = []
    at = 0
    while at < len(tokens):
        text, position = tokens[at]
        at += 1
        if text not in macros or depth > 5 or len(out) > 50_000:
            out.append((text, position))
            continue
        params, body = macros[text]
        given: dict[str, list[KernelToken]] = {}
        if params is not None:
            if at >= len(tokens) or tokens[at][0] != "(":
                out.append((text, position))
                continue
            parts, at = _macro_arguments(tokens, at)
            given = dict(zip(params, parts, strict=False))
        inner: list[KernelToken] = []
        for match in TOKEN.finditer(body):
            inner += [(word, position) for word, _ in given.get(match.group(), [(match.group(), position)])]
        out += expanded(inner, {k: v for k, v in macros.items() if k != text}, depth + 1)
    return out


def _macro_arguments(tokens: Sequence[KernelToken], at: int) -> tuple[list[list[KernelToken]], int]:
    """The arguments in the bracket that opens at `at`, and the position after it."""
    parts: list[list[KernelToken]] = [[]]
    depth, at = 1, at + 1
    while at < len(tokens):
        text = tokens[at][0]
        depth += (text in "([{") - (text in ")]}") if len(text) == 1 else 0
        at += 1
        if depth == 0:
            break
        if text == "," and depth == 1:
            parts.append([])
        else:
            parts[-1].append(tokens[at - 1])
    return parts, at
