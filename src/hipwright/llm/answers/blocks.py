"""Finds the code in an answer: fenced blocks, JSON strings, or bare text with prose around it."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["program", "plan", "hip", "diff", "none"]

_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)?(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_WORDS = ("python", "python3", "py", "hip", "cpp", "c++", "cuda", "c", "json")
_WRAPPERS = ("", "markdown", "md", "text", "txt", "plaintext")
_FORWARD = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+forward\b", re.MULTILINE)
_LITERAL = re.compile(
    r"^[ \t]*\w+[ \t]*(?::[ \t]*\w+[ \t]*)?=[ \t]*\(?[ \t]*(?:\w+\.)?(?:\w+\()?[rRbBuUfF]{0,2}(?:'''|\"\"\"|'|\")",
    re.MULTILINE,
)
_DIFF = re.compile(r"^(?:@@ .*@@|<<<<<<< |--- a/|\*\*\* Begin Patch)", re.MULTILINE)
_SMART_TRIPLES = re.compile(r"[“”„]{3}|[‘’‚]{3}")


@dataclass(frozen=True)
class CodeBlock:
    """A piece of code. before: the prose before it (last 400 characters). closed: its fence was closed."""

    text: str
    lang: str = ""
    before: str = ""
    closed: bool = True
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """The kind of code, by its text alone."""
        if self.lang in ("diff", "patch") or _DIFF.search(self.text):
            return "diff"
        forward = _FORWARD.search(self.text) is not None
        if "__global__" not in self.text:
            return "plan" if forward else "none"
        if forward:
            return "program"
        return "hip"

    @property
    def is_python(self) -> bool:
        """Whether it is Python with a HIP literal, and not plain C++."""
        return "__global__" in self.text and _LITERAL.search(self.text) is not None


# ---------------------------------------------------------------- fences


def blocks(text: str) -> list[CodeBlock]:
    """The code blocks of an answer in order; bare code if no fence holds any."""
    if (found := _from_json(text)) is not None:
        return found
    fenced = [made for block in _fenced(text) if not block.text.isspace() for made in _unpacked(block)]
    if any(block.kind != "none" for block in fenced):
        return fenced
    return [*fenced, *_bare(text)]


def _unpacked(block: CodeBlock) -> list[CodeBlock]:
    """Replaces a JSON block by the code in it; other blocks are unchanged."""
    if block.lang == "json" or block.text.lstrip().startswith("{"):
        found = _from_json(block.text)
        if found:
            return [replace(b, before=block.before) for b in found]
    return [_without_language_line(block)]


def _without_language_line(block: CodeBlock) -> CodeBlock:
    """Removes a first line that only names the language."""
    first, _, rest = block.text.lstrip("\n").partition("\n")
    if first.strip().lower() in _WORDS:
        return replace(
            block, text=rest, lang=first.strip().lower(), notes=(*block.notes, "a line that only names the language")
        )
    return block


@dataclass
class _OpenFence:
    """A fence being read."""

    fence: str
    lang: str
    before: str
    lines: list[str]
    quote: str = ""
    nested: int = 0
    stray: bool = False

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.quote = triple_quote(line, self.quote)

    def block(self, closed: bool) -> CodeBlock:
        notes = ("a fence inside the code",) if self.stray else ()
        return CodeBlock("\n".join(self.lines) + "\n", self.lang, self.before, closed, notes)


def _fenced(text: str) -> Iterator[CodeBlock]:
    lines = text.split("\n")
    now: _OpenFence | None = None
    prose: list[str] = []
    for number, line in enumerate(lines):
        match = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if now is None:
            if match:
                now, prose = _OpenFence(match[1], _lang(match[2]), _tail(prose), []), []
            else:
                prose.append(line)
        elif match is None or match[1][0] != now.fence[0] or len(match[1]) < len(now.fence):
            now.add(line)
        elif match[2].strip():
            made, now = _nested(now, match, prose)
            if made:
                yield made
        elif now.nested or (now.quote and _next_is_quote(lines, number)):
            now.nested, now.stray = max(now.nested - 1, 0), True
        else:
            yield now.block(True)
            now = None
    if now is not None:
        yield now.block(False)


def _nested(now: _OpenFence, match: re.Match[str], prose: list[str]) -> tuple[CodeBlock | None, _OpenFence]:
    """Handles a fence with a language inside a fence: a wrapper, a stray line in a literal, or an unclosed fence."""
    if now.quote:
        now.nested, now.stray = now.nested + 1, True
        return None, now
    inside = "\n".join(now.lines)
    opened = _OpenFence(match[1], _lang(match[2]), _tail(now.lines) if now.lang in _WRAPPERS else _tail(prose), [])
    if now.lang in _WRAPPERS and "__global__" not in inside and not _FORWARD.search(inside):
        return None, opened
    return now.block(False), opened


def _next_is_quote(lines: list[str], number: int) -> bool:
    following = next((line for line in lines[number + 1 : number + 4] if line.strip()), "")
    return following.lstrip().startswith(("'''", '"""'))


def _lang(info: str) -> str:
    return (info.strip().split() or [""])[0].strip("{}.").lower()


def _tail(lines: list[str]) -> str:
    return "\n".join(line for line in lines[-40:] if line.strip())[-400:]


def triple_quote(line: str, inside: str) -> str:
    """The triple quote open after a line, given the one open before it ("" for none)."""
    at = 0
    if not inside and line.lstrip().startswith("#"):
        return ""
    while True:
        if inside:
            at = line.find(inside, at)
            if at < 0:
                return inside
            inside, at = "", at + 3
        else:
            places = [(p, q) for q in ("'''", '"""') if (p := line.find(q, at)) >= 0]
            if not places:
                return ""
            at, inside = min(places)
            at += 3


# ---------------------------------------------------------------- JSON


def _from_json(text: str) -> list[CodeBlock] | None:
    """The code in the strings of a JSON document; None if the text is no JSON."""
    bare = text.strip()
    if not bare.startswith(("{", "[", '"')) or not bare.endswith(("}", "]", '"')):
        return None
    try:
        value = json.loads(bare, strict=False)
    except (ValueError, RecursionError):
        return None
    notes = ("code taken out of JSON",)
    made: list[CodeBlock] = []
    for text_ in _strings(value):
        inner = list(_fenced(text_)) if "```" in text_ or "~~~" in text_ else [CodeBlock(text_)]
        made += [replace(_without_language_line(b), notes=(*b.notes, *notes)) for b in inner if b.kind != "none"]
    return made


def _strings(value: Any) -> Iterator[str]:
    """The strings of a document by depth, at most four levels; a list of single lines is one text."""
    todo: deque[tuple[Any, int]] = deque([(value, 0)])
    while todo:
        item, depth = todo.popleft()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list) and all(isinstance(line, str) and "\n" not in line.rstrip("\n") for line in item):
            yield "\n".join(line.rstrip("\n") for line in item)
        elif isinstance(item, (dict, list)) and depth < 4:
            values = list(item.values()) if isinstance(item, dict) else item
            todo += [(inner, depth + 1) for inner in values[:64]]


# ---------------------------------------------------------------- no fence

_PYTHON_START = re.compile(
    r"(?:HIP\b|\w+[ \t]*(?::[ \t]*str[ \t]*)?=[ \t]*[rRuU]?(?:'''|\"\"\"|[“”‘’]{3})"
    r"|[A-Z]\w*[ \t]*=[ \t]*(?:knob\(|\d)|import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b"
    r"|def[ \t]+(?:forward|prepare|backward)\b|class[ \t]+\w+\(|@triton)"
)
_CPP_START = re.compile(
    r"(?:#[ \t]*include\b|extern[ \t]+[\"“]C|__global__|__device__|template[ \t]*<|static[ \t]+__"
    r"|typedef\b|#[ \t]*define\b)"
)
_CODE_LINE = re.compile(
    r"(?:[ \t]|#|@|def |class |import |from [\w.]+ import|if __name__|else:|[)\]}]|'''|\"\"\"|[“”‘’]{3}"
    r"|[A-Za-z_][\w.]*[ \t]*(?::[ \t]*\w+[ \t]*)?=[^=]|[A-Za-z_][\w.]*(?:\[|\())"
)


def _bare(text: str) -> list[CodeBlock]:
    """Code outside of any fence."""
    lines = [line for line in text.split("\n") if not (line.lstrip().startswith(("```", "~~~")) and _FENCE.match(line))]
    python = next((i for i, line in enumerate(lines) if _PYTHON_START.match(line)), len(lines))
    cpp = next((i for i, line in enumerate(lines[:python]) if _CPP_START.match(line)), None)
    made = []
    if cpp is not None:
        hip = lines[cpp:python]
        while hip and not hip[-1].rstrip().endswith(("}", ";")) and not hip[-1].lstrip().startswith("#"):
            hip.pop()
        made.append(CodeBlock("\n".join(hip) + "\n", "hip", _tail(lines[:cpp]), closed=False))
    if python < len(lines):
        made.append(CodeBlock(until_prose("\n".join(lines[python:])), "python", _tail(lines[:python]), closed=False))
    return [replace(b, notes=("code without a fence",)) for b in made if b.kind != "none"]


def until_prose(text: str) -> str:
    """Python text up to the first unindented line that cannot be code."""
    kept: list[str] = []
    quote = ""
    for line in text.split("\n"):
        if not quote and line.strip() and not _CODE_LINE.match(line):
            break
        plain = _SMART_TRIPLES.sub(lambda m: '"""' if m.group()[0] in "“”„" else "'''", line)
        quote = triple_quote(plain, quote)
        kept.append(line)
    return "\n".join(kept).rstrip("\n") + "\n"
