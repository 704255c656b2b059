"""Parses C++ types among the tokens of a host function, each to one spelling."""

from __future__ import annotations

from hipwright.program.convert.cpp_text import Inconvertible, Token

TYPE_WORDS = {"unsigned", "signed", "long", "short", "int", "char", "float", "double", "bool", "void", "auto"}
_CV = {"const", "constexpr", "static", "volatile", "inline", "typename", "struct", "__restrict__", "mutable"}
_NOT_TYPES = {
    "return",
    "if",
    "for",
    "while",
    "do",
    "else",
    "delete",
    "new",
    "sizeof",
    "throw",
    "using",
    "goto",
    "switch",
}


class TypeParser:
    """A cursor over one function's tokens that parses C++ types."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """The text of a token ahead, "" past the end."""
        index = self.at + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        """The kind of a token ahead."""
        index = self.at + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def take(self, text: str = "") -> str:
        """Consumes the next token, which must be `text` if given; returns its text. Raises Inconvertible."""
        found = self.peek()
        if not found or (text and found != text):
            raise Inconvertible(f"`{text or 'more'}` is expected before `{found or 'the end'}`")
        self.at += 1
        return found

    def skip(self, text: str) -> bool:
        """Consumes the next token if it is `text`; whether it was."""
        if self.peek() != text:
            return False
        self.at += 1
        return True

    # ------------------------------------------------------------ types

    def type_name(self) -> str:
        """Parses a type to one spelling: "float*", "torch::Tensor", "std::vector<int64_t>". Raises Inconvertible."""
        words: list[str] = []
        while True:
            if self.peek() in _CV:
                self.at += 1
            elif self.peek() in TYPE_WORDS and (not words or words[-1] in TYPE_WORDS):
                words.append(self.take())
            elif not words and self.kind() == "name" and self.peek() not in _NOT_TYPES:
                words.append(self.qualified_type())
            else:
                break
        if not words:
            raise Inconvertible(f"a type is expected before `{self.peek()}`")
        stars = ""
        while self.peek() in ("*", "&", "&&", "const", "__restrict__"):
            token = self.take()
            stars += "*" if token == "*" else ""
        return " ".join(words) + stars

    def qualified_type(self) -> str:
        """Parses name(::name)* with template arguments."""
        self.skip("::")
        text = self.take()
        while True:
            if self.peek() == "<":
                arguments = self.template_arguments()
                if arguments is None:
                    return text
                text += f"<{', '.join(arguments)}>"
            elif self.peek() == "::" and self.kind(1) == "name":
                self.take("::")
                text += "::" + self.take()
            else:
                return text

    def template_arguments(self) -> list[str] | None:
        """Parses the arguments from `<` to `>`, as text; None (and nothing consumed) for a comparison."""
        start, depth, parts = self.at, 0, [""]
        while self.at < len(self.tokens):
            text = self.peek()
            if text in (";", "{", "}", "&&", "||", "?", "=", "<<<"):
                break
            self.at += 1
            closes = {">": 1, ">>>": 3}.get(text, 0)
            if text == "<":
                depth += 1
                if depth == 1:
                    continue
            elif closes:
                depth -= closes
                if depth <= 0:
                    return [" ".join(p.split()) for p in parts if p.strip()]
            elif text == "," and depth == 1:
                parts.append("")
                continue
            parts[-1] += f" {text}" if text.isidentifier() and parts[-1][-1:].isalnum() else text
        self.at = start
        return None

    def type_before(self, after: tuple[str, ...]) -> str | None:
        """Parses a type that one of `after` follows ("name" for any identifier); else None, and nothing is consumed."""
        start = self.at
        try:
            found = self.type_name()
        except Inconvertible:
            self.at = start
            return None
        if self.peek() in after or ("name" in after and self.kind() == "name" and self.peek() not in _NOT_TYPES):
            return found
        self.at = start
        return None
