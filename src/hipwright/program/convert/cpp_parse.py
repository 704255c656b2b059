"""Parses the tokens of a C++ host function into a small syntax tree of tuples. Raises Inconvertible for other syntax.

Expressions: ("num", text) ("str", text) ("name", "a::b", targs) ("call", fn, args) ("member", obj, name, targs)
("index", obj, i) ("unary", op, x) ("binary", op, a, b) ("cond", c, a, b) ("cast", type, x) ("brace", items)
("make", type, args) ("lambda", body, text of its parameters, text of its body).
Statements: ("decl", type, [(name, pointer, form, args)]) ("unpack", names, x) ("expr", x) ("assign", target, op, x)
("launch", kernel, config, args) ("if", c, then, otherwise) ("for", init, cond, step, body) ("return", x)
("block", items) ("alias", name, type) ("throw",).
"""

from __future__ import annotations

from typing import Any

from hipwright.program.convert.cpp_expression_parser import ExpressionParser, Node
from hipwright.program.convert.cpp_text import Inconvertible


class Statement(tuple[Any, ...]):
    """A statement's node with its line, 0 where that is not known."""

    line: int = 0


_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "<<=")


class CppParser(ExpressionParser):
    """Recursive descent over the statements of one function's tokens."""

    def block(self) -> list[Node]:
        """Parses statements in braces."""
        self.take("{")
        items: list[Node] = []
        while not self.skip("}"):
            items.append(self.statement())
        return items

    def body(self) -> list[Node]:
        """Parses a block, or one statement."""
        return self.block() if self.peek() == "{" else [self.statement()]

    def statement(self) -> Statement:
        """Parses one statement."""
        line = self.line()
        try:
            found = Statement(self.unplaced())
        except Inconvertible as error:
            raise error.at(self.line() or line) from None
        found.line = line
        return found

    def line(self) -> int:
        """The line of the next token, or of the last one; 0 where it is not known."""
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 0

    def unplaced(self) -> Node:
        """Parses one statement, without its line."""
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
        """Whether a node is a macro call without a semicolon, such as CHECK(x) or AT_DISPATCH(...)."""
        return bool(node[1][0] == "call" and self.peek() != ";" and str(node[1][1][1]).isupper())

    def keyword(self, text: str) -> Node:
        """Parses a statement that starts with a keyword."""
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
            then = self.body()
            return ("if", test, then, self.body() if self.skip("else") else [])
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
        """Parses for (init; condition; step) body."""
        self.take("(")
        init = self.declaration() or self.simple()
        self.take(";")
        test = self.expression()
        self.take(";")
        step = self.simple()
        self.take(")")
        return ("for", init, test, step, self.body())

    def declaration(self) -> Node | None:
        """Parses type name [= x | (args) | {args}], ...; None, and nothing is consumed, when it is no declaration."""
        start = self.at
        if self.peek() in ("auto", "const") and (bound := self.unpacking()) is not None:
            return bound
        found = self.type_before(("name",))
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
        """Parses auto [a, b] = x."""
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
        """Parses an assignment, an increment, a launch or an expression."""
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
        """Parses an expression that ++ may follow."""
        if self.kind() == "name" and self.peek(1) in ("++", "--"):
            return ("name", self.take(), None)
        return self.expression()
