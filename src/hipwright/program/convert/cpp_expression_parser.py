"""Parses C++ expressions of host functions into the tuples that `cpp_parse` lists."""

from __future__ import annotations

from typing import Any

from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.cpp_types import TYPE_WORDS, TypeParser

Node = tuple[Any, ...]
_BINARY = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_CASTS = ("static_cast", "reinterpret_cast", "const_cast", "dynamic_cast")
_KNOWN_TYPES = {
    "dim3",
    "size_t",
    "int64_t",
    "int32_t",
    "uint32_t",
    "uint64_t",
    "int8_t",
    "uint8_t",
    "int16_t",
    "scalar_t",
    "half",
    "__half",
    "float4",
    "float2",
    "half2",
    "__half2",
    "std::size_t",
    "at::Half",
    "c10::Half",
    "nv_bfloat16",
    "__nv_bfloat16",
    "at::BFloat16",
    "unsigned",
    "T",
}


class ExpressionParser(TypeParser):
    """Recursive descent over the expressions of one function's tokens."""

    def block(self) -> list[Node]:
        """Parses statements in braces: the body of a lambda."""
        raise NotImplementedError

    def expression(self) -> Node:
        """Parses an expression without assignment."""
        test = self.binary(0)
        if not self.skip("?"):
            return test
        yes = self.expression()
        self.take(":")
        return ("cond", test, yes, self.expression())

    def binary(self, level: int) -> Node:
        """Parses left-associative operators from a level of precedence on."""
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while True:
            op = self.peek()
            if op == ">" and self.peek(1) == ">" and ">>" in _BINARY[level]:
                op = ">>"
                self.at += 1
            if op not in _BINARY[level] or (op == ">" and self.peek(1) == ">"):
                return left
            self.at += 1
            left = ("binary", op, left, self.binary(level + 1))

    def unary(self) -> Node:
        """Parses prefix operators and casts."""
        if self.peek() in ("!", "-", "+", "~", "*", "&"):
            return ("unary", self.take(), self.unary())
        if self.peek() in ("++", "--"):
            raise Inconvertible("++ inside an expression")
        if self.peek() == "(":
            start = self.at
            self.at += 1
            found = self.type_before((")",))
            if found is not None:
                self.take(")")
                cast = found.split("*")[0].split("<")[0]
                starts = self.kind() in ("name", "number", "string") or self.peek() in ("(", "-", "{")
                starts = starts or (found.endswith("*") and self.peek() == "&")
                if starts and (found.endswith("*") or cast in _KNOWN_TYPES or cast.split()[0] in TYPE_WORDS):
                    return ("cast", found, self.unary())
            self.at = start
        return self.postfix(self.primary())

    def primary(self) -> Node:
        """Parses names, literals, parentheses, braces, casts by name and lambdas."""
        kind, text = self.kind(), self.peek()
        if kind == "number":
            return ("num", self.take())
        if kind == "string":
            parts = [self.take()]
            while self.kind() == "string":
                parts.append(self.take())
            return ("str", "".join(p[1:-1] for p in parts))
        if text == "(":
            self.take("(")
            inner = self.expression()
            self.take(")")
            return inner
        if text == "{":
            return ("brace", self.listed("{", "}"))
        if text == "[":
            return self.lambda_body()
        if kind == "name" or text == "::":
            return self.named()
        raise Inconvertible(f"`{text}` is not understood")

    def named(self) -> Node:
        """Parses a name, a cast by name, sizeof, or the construction of a type."""
        if self.peek() in _CASTS:
            self.take()
            arguments = self.template_arguments()
            if not arguments:
                raise Inconvertible("a cast without a type")
            self.take("(")
            inner = self.expression()
            self.take(")")
            return ("cast", arguments[0], inner)
        if self.peek() == "sizeof":
            self.take()
            self.take("(")
            found = self.type_name()
            self.take(")")
            return ("sizeof", found)
        if self.peek() in TYPE_WORDS:
            found = self.type_name()
            return ("make", found, self.listed("(", ")") if self.peek() == "(" else self.listed("{", "}"))
        self.skip("::")
        text, arguments = self.take(), None
        while True:
            if self.peek() == "::" and self.kind(1) == "name":
                self.take("::")
                text += ("" if arguments is None else f"<{', '.join(arguments)}>") + "::" + self.take()
                arguments = None
            elif self.peek() == "<" and arguments is None and (tried := self.template_arguments_before()) is not None:
                arguments = tried
            else:
                return ("name", text, arguments)

    def template_arguments_before(self) -> list[str] | None:
        """Parses template arguments if the token after them shows that `<` is no comparison."""
        start = self.at
        found = self.template_arguments()
        if found is not None and self.peek() in ("(", "<<<", "::", "{", ",", ")"):
            return found
        self.at = start
        return None

    def postfix(self, node: Node) -> Node:
        """Parses calls, members and indices."""
        while True:
            text = self.peek()
            if text == "(":
                node = ("call", node, self.listed("(", ")"))
            elif text in (".", "->"):
                self.at += 1
                self.skip("template")
                name = self.take()
                arguments = self.template_arguments_before() if self.peek() == "<" else None
                node = ("member", node, name, arguments)
            elif text == "[":
                self.take("[")
                node = ("index", node, self.expression())
                self.take("]")
            elif text == "{" and node[0] == "name" and self.is_type_name(node):
                spelled = node[1] + ("" if node[2] is None else f"<{', '.join(node[2])}>")
                node = ("make", spelled, self.listed("{", "}"))
            elif text in ("++", "--"):
                raise Inconvertible("++ inside an expression")
            else:
                return node

    def is_type_name(self, node: Node) -> bool:
        """Whether a name node is that of a type, so that braces after it construct one."""
        return node[2] is not None or "::" in node[1] or node[1] in _KNOWN_TYPES

    def listed(self, left: str, right: str) -> list[Node]:
        """Parses comma-separated expressions in brackets."""
        self.take(left)
        items: list[Node] = []
        while not self.skip(right):
            items.append(self.expression())
            if self.peek() != right:
                self.take(",")
        return items

    def lambda_body(self) -> Node:
        """Parses [&] { ... } or [](int a) { ... }, with parameters and body also as text."""
        while self.take() != "]":
            pass
        start = self.at
        if self.skip("("):
            while self.take() != ")":
                pass
        params, start = self.between(start), self.at
        if self.skip("->"):
            self.type_name()
        start = self.at
        return ("lambda", self.block(), params, self.between(start))

    def between(self, start: int) -> str:
        """The text from a position up to the cursor."""
        return " ".join(token.text for token in self.tokens[start : self.at])
