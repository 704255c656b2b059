"""Tokens of a C++ host function -> a small syntax tree of tuples. What the grammar lacks is Inconvertible.

Expressions: ("num", text) ("str", text) ("name", "a::b", targs) ("call", fn, args) ("member", obj, name, targs)
("index", obj, i) ("unary", op, x) ("binary", op, a, b) ("cond", c, a, b) ("cast", type, x) ("brace", items)
("make", type, args) ("lambda", body, text of its parameters, text of its body).
Statements: ("decl", type, [(name, pointer, form, args)])
("unpack", names, x) ("expr", x) ("assign", target, op, x) ("launch", kernel, config, args)
("if", c, yes, no) ("for", init, cond, step, body)
("return", x) ("block", items).
"""

from __future__ import annotations

from typing import Any

from hipwright.program.convert.cpp_text import Inconvertible
from hipwright.program.convert.cpp_types import TYPE_WORDS, Types

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
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "<<=")
_CASTS = ("static_cast", "reinterpret_cast", "const_cast", "dynamic_cast")


class Parser(Types):
    """Recursive descent over one function's tokens."""

    # ------------------------------------------------------------ expressions

    def expression(self) -> Node:
        """An expression without assignment."""
        test = self.binary(0)
        if not self.skip("?"):
            return test
        yes = self.expression()
        self.take(":")
        return ("cond", test, yes, self.expression())

    def binary(self, level: int) -> Node:
        """Left-associative operators from a level of precedence on."""
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
        """Prefix operators and casts."""
        if self.peek() in ("!", "-", "+", "~", "*", "&"):
            return ("unary", self.take(), self.unary())
        if self.peek() in ("++", "--"):
            raise Inconvertible("++ inside an expression")
        if self.peek() == "(":
            start = self.at
            self.at += 1
            found = self.tried_type((")",))
            if found is not None:
                self.take(")")
                cast = found.split("*")[0].split("<")[0]
                starts = self.kind() in ("name", "number", "string") or self.peek() in ("(", "-", "{")
                if starts and (found.endswith("*") or cast in _KNOWN or cast.split()[0] in TYPE_WORDS):
                    return ("cast", found, self.unary())
            self.at = start
        return self.postfix(self.primary())

    def primary(self) -> Node:
        """Names, literals, parentheses, braces, casts by name, lambdas."""
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
        """A name, a cast by name, sizeof, or a type that is called."""
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
            elif self.peek() == "<" and arguments is None and (tried := self.tried_arguments()) is not None:
                arguments = tried
            else:
                return ("name", text, arguments)

    def tried_arguments(self) -> list[str] | None:
        """Template arguments when what follows them shows that `<` is no comparison."""
        start = self.at
        found = self.template_arguments()
        if found is not None and self.peek() in ("(", "<<<", "::", "{", ",", ")"):
            return found
        self.at = start
        return None

    def postfix(self, node: Node) -> Node:
        """Calls, members, indices."""
        while True:
            text = self.peek()
            if text == "(":
                node = ("call", node, self.listed("(", ")"))
            elif text in (".", "->"):
                self.at += 1
                self.skip("template")
                name = self.take()
                arguments = self.tried_arguments() if self.peek() == "<" else None
                node = ("member", node, name, arguments)
            elif text == "[":
                self.take("[")
                node = ("index", node, self.expression())
                self.take("]")
            elif text == "{" and node[0] == "name" and (node[2] is not None or "::" in node[1] or node[1] in _KNOWN):
                spelled = node[1] + ("" if node[2] is None else f"<{', '.join(node[2])}>")
                node = ("make", spelled, self.listed("{", "}"))
            elif text in ("++", "--"):
                raise Inconvertible("++ inside an expression")
            else:
                return node

    def listed(self, left: str, right: str) -> list[Node]:
        """Comma-separated expressions in brackets."""
        self.take(left)
        items: list[Node] = []
        while not self.skip(right):
            items.append(self.expression())
            if self.peek() != right:
                self.take(",")
        return items

    def lambda_body(self) -> Node:
        """[&] { ... }, or [](int a) { ... }: with its parameters and body as text."""
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
        """The text from a place up to here."""
        return " ".join(token.text for token in self.given[start : self.at])

    # ------------------------------------------------------------ statements

    def block(self) -> list[Node]:
        """Statements in braces."""
        self.take("{")
        items: list[Node] = []
        while not self.skip("}"):
            items.append(self.statement())
        return items

    def body(self) -> list[Node]:
        """A block, or one statement."""
        return self.block() if self.peek() == "{" else [self.statement()]

    def statement(self) -> Node:
        """One statement."""
        text = self.peek()
        if text == "{":
            return ("block", self.block())
        if self.skip(";"):
            return ("block", [])
        if text in ("if", "for", "return", "do", "using", "while", "switch", "throw", "try", "goto"):
            return self.keyword(text)
        node = self.declaration() or self.simple()
        if node[0] != "expr" or not self.ends_block(node):
            self.take(";")
        return node

    def ends_block(self, node: Node) -> bool:
        """A macro call such as CHECK(x) or AT_DISPATCH(...) that stands without a semicolon."""
        return bool(node[1][0] == "call" and self.peek() != ";" and str(node[1][1][1]).isupper())

    def keyword(self, text: str) -> Node:
        """Statements that start with a keyword."""
        self.take()
        if text == "return":
            value = None if self.peek() == ";" else self.expression()
            self.take(";")
            return ("return", value)
        if text == "if":
            self.skip("constexpr")
            self.take("(")
            test = self.expression()
            self.take(")")
            yes = self.body()
            return ("if", test, yes, self.body() if self.skip("else") else [])
        if text == "for":
            return self.loop()
        if text == "do":
            body = self.block()
            self.take("while")
            if [self.take() for _ in range(3)][1] not in ("0", "false"):
                raise Inconvertible("a do loop")
            self.skip(";")
            return ("block", body)
        if text == "throw":
            while self.take() != ";":
                pass
            return ("throw",)
        if text == "using":
            name = self.take()
            if name == "namespace":
                while self.take() != ";":
                    pass
                return ("block", [])
            self.take("=")
            found = self.type_name()
            self.take(";")
            return ("alias", name, found)
        raise Inconvertible(f"`{text}` in host code")

    def loop(self) -> Node:
        """for (init; condition; step) body."""
        self.take("(")
        init = self.declaration() or self.simple()
        self.take(";")
        test = self.expression()
        self.take(";")
        step = self.simple()
        self.take(")")
        return ("for", init, test, step, self.body())

    def declaration(self) -> Node | None:
        """type name [= x | (args) | {args}], ...; None and nothing taken when it is none."""
        start = self.at
        if self.peek() in ("auto", "const") and (bound := self.unpacking()) is not None:
            return bound
        found = self.tried_type(("name",))
        if found is None or (self.peek(1) not in ("=", ";", ",", "(", "{", "[", ":")):
            self.at = start
            return None
        variables = []
        while True:
            stars = 0
            while self.skip("*") or self.skip("&"):
                stars += 1
            name = self.take()
            form, args = "", []
            if self.skip("="):
                form, args = "=", [self.expression()]
            elif self.peek() == "(":
                form, args = "(", self.listed("(", ")")
            elif self.peek() == "{":
                form, args = "{", self.listed("{", "}")
            elif self.peek() == "[":
                raise Inconvertible("an array in host code")
            variables.append((name, bool(stars) or found.endswith("*"), form, args))
            if not self.skip(","):
                return ("decl", found, variables)

    def unpacking(self) -> Node | None:
        """auto [a, b] = x."""
        start = self.at
        self.skip("const")
        if self.skip("auto"):
            while self.skip("&") or self.skip("&&"):
                pass
            if self.skip("["):
                names = [self.take()]
                while self.skip(","):
                    names.append(self.take())
                self.take("]")
                self.take("=")
                return ("unpack", names, self.expression())
        self.at = start
        return None

    def simple(self) -> Node:
        """An assignment, an increment, a launch, or an expression."""
        if self.peek() in ("++", "--"):
            op = self.take()
            return ("assign", self.postfix(self.primary()), op[0] + "=", ("num", "1"))
        node = self.without_increment()
        if self.peek() in ("++", "--"):
            return ("assign", node, self.take()[0] + "=", ("num", "1"))
        if self.peek() in _ASSIGN:
            return ("assign", node, self.take(), self.expression())
        if self.skip("<<<"):
            config = [self.expression()]
            while self.skip(","):
                config.append(self.expression())
            self.take(">>>")
            return ("launch", node, config, self.listed("(", ")"))
        return ("expr", node)

    def without_increment(self) -> Node:
        """An expression that may be followed by ++."""
        if self.kind() == "name" and self.peek(1) in ("++", "--"):
            return ("name", self.take(), None)
        return self.expression()


_KNOWN = {
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
