"""Splits the C++ and CUDA text of an extension into top-level items and tokens. Text that is not understood is refused.

Comments are blanked first. Namespaces and `extern "C"` blocks are opened, so that every function is a top-level item.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hipwright.errors import ProgramError


class Inconvertible(ProgramError):
    """The host code has something without a counterpart in a plan. why: the reason alone; line: 0 where not known."""

    def __init__(self, message: str, line: int = 0) -> None:
        self.why = " ".join(message.split())
        super().__init__(f"cannot be converted: {self.why}", line)

    def at(self, line: int) -> Inconvertible:
        """The same with a line, where it has none yet."""
        return self if self.line else Inconvertible(self.why, line)


@dataclass(frozen=True)
class CppItem:
    """One top-level item.

    kind: "include", "define", "directive", "kernel", "device", "host", "prototype", "binding" or "other" (types,
    constants, aliases). name: of a function or macro. head: a function's text before its body. line: of its first
    character, from 1; 0 where it is not known.
    """

    kind: str
    text: str
    name: str = ""
    head: str = ""
    body: str = ""
    line: int = 0

    @property
    def body_line(self) -> int:
        """The line on which a function's body starts; 0 where it is not known."""
        return self.line + self.head.count("\n") if self.line else 0


@dataclass(frozen=True)
class Macro:
    """A #define; params is None for one without parentheses."""

    params: tuple[str, ...] | None
    body: str


@dataclass
class ExtensionSource:
    """The items and macros of an extension's text."""

    items: list[CppItem] = field(default_factory=list)
    macros: dict[str, Macro] = field(default_factory=dict)

    def functions(self, kind: str) -> dict[str, CppItem]:
        """Items of a kind by name."""
        return {i.name: i for i in self.items if i.kind == kind and i.body}


_COMMENT = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL
)
_NAMESPACE = re.compile(r"\s*(?:inline\s+)?namespace\s*(?P<name>[\w:]*)\s*\{")
_EXTERN = re.compile(r'\s*extern\s*"C"\s*\{')


def split_items(texts: Sequence[str], *, located: bool = False) -> ExtensionSource:
    """Splits several source texts into items, in order. Raises Inconvertible for unbalanced text.

    located: items and errors have their lines, which only the one text of a file has.
    """
    source = ExtensionSource()
    for text in texts:
        _items(uncomment(text), source, located=located)
    return source


def uncomment(text: str) -> str:
    """Replaces comments by blanks; literals and line breaks stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return re.sub(r"[^\n]", " ", found) if found[0] == "/" else found

    return _COMMENT.sub(blank, text)


def _items(code: str, source: ExtensionSource, *, located: bool) -> None:
    at, closers = 0, 0
    while True:
        at += len(code[at:]) - len(code[at:].lstrip())
        if at >= len(code):
            return
        if code[at] == "#":
            end = _directive_end(code, at)
            source.items.append(replace(_directive(code[at:end], source), line=_line(code, at) if located else 0))
            at = end
        elif code[at] == "}" and closers:
            at, closers = at + 1, closers - 1
        elif code[at] == ";":
            at += 1
        elif (match := _NAMESPACE.match(code, at)) or (match := _EXTERN.match(code, at)):
            at, closers = match.end(), closers + 1
        else:
            line = _line(code, at) if located else 0
            try:
                end = _item_end(code, at)
                source.items.append(replace(_item(code[at:end].strip()), line=line))
            except Inconvertible as error:
                raise error.at(line) from None
            at = end


def _line(code: str, at: int) -> int:
    return code.count("\n", 0, at) + 1


def _directive_end(code: str, at: int) -> int:
    match = re.compile(r"(?:\\\n|[^\n])*").match(code, at)
    assert match is not None
    return match.end()


def _directive(text: str, source: ExtensionSource) -> CppItem:
    if re.match(r"#\s*include\b", text):
        return CppItem("include", text)
    match = re.match(r"#\s*define\s+(?P<name>\w+)(?P<params>\([^)]*\))?(?P<body>.*)", text, re.DOTALL)
    if match is None:
        return CppItem("directive", text)
    params = (
        None if match["params"] is None else tuple(p.strip() for p in match["params"][1:-1].split(",") if p.strip())
    )
    source.macros[match["name"]] = Macro(params, match["body"].replace("\\\n", " ").strip())
    return CppItem("define", text, match["name"])


_TYPE_HEAD = re.compile(r"(?:typedef\s+)?(?:struct|class|enum|union)\b")


def _item_end(code: str, at: int) -> int:
    """The position after the `;` or the body that ends the item at `at`."""
    depth, start = 0, at
    for match in re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|[(){};\[\]]").finditer(code, at):
        token = match.group()
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
            if depth < 0:
                raise Inconvertible("brackets do not match")
            if token == "}" and depth == 0 and _is_function(code[start : match.end()]):
                return match.end()
        elif token == ";" and depth == 0:
            return match.end()
    raise Inconvertible("the text ends within a declaration")


def _is_function(text: str) -> bool:
    return _function_parts(text) is not None


def without_template(text: str) -> tuple[str, str]:
    """(the template header or "", the rest)."""
    match = re.match(r"\s*template\s*<", text)
    if match is None:
        return "", text
    depth, at = 1, match.end()
    while depth and at < len(text):
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        at += 1
    return text[:at], text[at:]


def _function_parts(text: str) -> tuple[str, str, str] | None:
    """(head, name, body) of a function definition, None for anything else."""
    _, rest = without_template(text)
    brace = rest.find("{")
    if brace < 0 or _TYPE_HEAD.match(rest.strip()):
        return None
    head = rest[:brace]
    if not re.search(r"\)\s*(?:const|noexcept|->[\w\s:<>*&]+)?\s*$", head):
        return None
    bare = re.sub(
        r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__attribute__\s*\(\([^()]*(?:\([^()]*\))?\)\)", " ", head
    )
    match = re.search(r"([A-Za-z_]\w*)\s*\(", bare)
    if match is None or re.search(r"=\s*$|=[^=]", bare[: match.start()]):
        return None
    whole = text[: len(text) - len(rest)] + head
    return whole, match.group(1), rest[brace:]


def _item(text: str) -> CppItem:
    if re.match(r"PYBIND11_MODULE\b", text):
        return CppItem("binding", text, body=text.partition("{")[2])
    if re.match(r"TORCH_LIBRARY", text):
        raise Inconvertible("operators registered by TORCH_LIBRARY")
    parts = _function_parts(text)
    if parts is not None:
        head, name, body = parts
        return CppItem(_function_kind(head), text, name, head, body)
    _, rest = without_template(text)
    match = re.match(r"[^={]*?([A-Za-z_]\w*)\s*\(.*\)\s*(?:const|noexcept)?\s*;$", rest, re.DOTALL)
    if match and not _TYPE_HEAD.match(rest) and not re.match(r"\s*(?:typedef|using|static_assert)\b", rest):
        return CppItem("prototype", text, match.group(1))
    return CppItem("other", text)


def _function_kind(head: str) -> str:
    if "__global__" in head:
        return "kernel"
    if "__device__" in head or re.search(r"\bconstexpr\b", head):
        return "device"
    return "host"


# ---------------------------------------------------------------- tokens

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)
    | (?P<number>0[xX][0-9a-fA-F']+[uUlL]*|(?:\d[\d']*\.?[\d']*|\.\d+)(?:[eE][+-]?\d+)?[uUlLfF]*)
    | (?P<string>"(?:\\.|[^"\\\n])*")
    | (?P<char>'(?:\\.|[^'\\\n])+')
    | (?P<op><<<|>>>|<<=|->|\+\+|--|\+=|-=|\*=|/=|%=|&=|\|=|==|!=|<=|>=|&&|\|\||::|<<|\.\.\.
        |[-+*/%<>=!~&|^?:;,.(){}\[\]\#@\\]))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """kind: "name", "number", "string", "char" or "op". line: 0 where it is not known; of a macro's use in its body."""

    kind: str
    text: str
    line: int = 0


def tokens(code: str, macros: Mapping[str, Macro] | None = None, line: int = 0) -> list[Token]:
    """The tokens of host code with its own macros expanded. line: of the code's first character, 0 where not known.

    Raises Inconvertible for directives and unknown characters."""
    found, at = [], 0
    while code[at:].strip():
        match = _TOKEN.match(code, at)
        here = line and line + code.count("\n", 0, match.start(match.lastgroup or 0) if match else at)
        if match is None:
            raise Inconvertible(f"unreadable text {code[at : at + 20].strip()!r}", here)
        assert match.lastgroup is not None
        if match["op"] == "#":
            raise Inconvertible("a preprocessor directive inside a host function", here)
        found.append(Token(match.lastgroup, match[match.lastgroup], here))
        at = match.end()
    return _expand(found, macros or {}, frozenset())


def _expand(given: list[Token], macros: Mapping[str, Macro], expanding: frozenset[str]) -> list[Token]:
    out: list[Token] = []
    at = 0
    while at < len(given):
        token = given[at]
        macro = macros.get(token.text) if token.kind == "name" and token.text not in expanding else None
        if macro is None:
            out.append(token)
            at += 1
            continue
        arguments: dict[str, list[Token]] = {}
        at += 1
        if macro.params is not None:
            if at >= len(given) or given[at].text != "(":
                out.append(token)
                continue
            parts, at = _arguments(given, at)
            arguments = _bind_arguments(macro, parts)
        body = [replace(one, line=token.line) for one in _substituted(macro, arguments)]
        out += _expand(body, macros, expanding | {token.text})
    return out


def _bind_arguments(macro: Macro, parts: list[list[Token]]) -> dict[str, list[Token]]:
    assert macro.params is not None
    if macro.params and macro.params[-1] == "...":
        fixed = len(macro.params) - 1
        rest: list[Token] = []
        for index, part in enumerate(parts[fixed:]):
            rest += [Token("op", ",")] * bool(index) + part
        return dict(zip(macro.params, parts[:fixed], strict=False)) | {"__VA_ARGS__": rest}
    return dict(zip(macro.params, parts, strict=False))


def _substituted(macro: Macro, arguments: Mapping[str, list[Token]]) -> list[Token]:
    """The macro's body with its arguments; # gives an empty string, since stringised arguments only occur in
    messages."""
    code = re.sub(r"(?<!#)#\s*\w+", '""', macro.body)
    if "##" in code:
        raise Inconvertible("a macro that joins names")
    out: list[Token] = []
    for token in tokens(code):
        out += arguments.get(token.text, [token]) if token.kind == "name" else [token]
    return out


def _arguments(given: Sequence[Token], at: int) -> tuple[list[list[Token]], int]:
    """The comma-separated parts in the parentheses that open at `at`, and the position after them."""
    parts: list[list[Token]] = [[]]
    depth = 0
    while at < len(given):
        text = given[at].text
        if text in ("(", "[", "{"):
            depth += 1
            if depth > 1:
                parts[-1].append(given[at])
        elif text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return parts, at + 1
            parts[-1].append(given[at])
        elif text == "," and depth == 1:
            parts.append([])
        else:
            parts[-1].append(given[at])
        at += 1
    raise Inconvertible("a macro's arguments do not end")
