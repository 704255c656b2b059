"""The device headers that hipwright ships: `#include <hipwright/NAME.h>` in a program, part of the trusted side.

A program's text names headers; every compiler here finds them in toolchain/include, and `inlined` writes their text
into a source that leaves this machine. Inlined headers stand between two marker lines, by which `shortened` recognises
them: a block that differs from the shipped text in one byte is a program's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from hipwright.toolchain import clang

FOLDER = clang.INCLUDE / "hipwright"
STREAMING = ("streaming_loads", "streaming_stores")
"""Headers that define functions of `vector_access` otherwise; a source includes them before all others."""
BEGIN = "// hipwright device headers {id}: {names}"
END = "// end of hipwright device headers"
_INCLUDED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<hipwright/(\w+)\.h>[ \t]*(?://[^\n]*)?\n?", re.MULTILINE)
BFLOAT16_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<hip/hip_bf16\.h>[^\n]*", re.MULTILINE)
_CONSTANTS = re.compile(r"\b(?:INFINITY|NAN)\b")
_STANDARD = re.compile(r"^#include <(?!hipwright/)[^>\n]+>\n", re.MULTILINE)
_ONCE = re.compile(r"^#pragma once\n", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CAPITALISED = re.compile(r"\b[A-Z]\w*")
_BLOCK = re.compile(
    r"^// hipwright device headers (\w+): ([\w ]+)\n(.*?)^// end of hipwright device headers\n",
    re.MULTILINE | re.DOTALL,
)


@cache
def names() -> tuple[str, ...]:
    """The headers' names, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.h")))


@cache
def text(name: str) -> str:
    """A header's text. Raises KeyError for an unknown one."""
    if name not in names():
        raise KeyError(name)
    return (FOLDER / f"{name}.h").read_text(encoding="utf-8")


@cache
def device_headers_id() -> str:
    """A digest of all device headers: 20 hex digits."""
    return clang.digest(FOLDER)


def included(source: str) -> tuple[str, ...]:
    """The names of the device headers that a source includes itself, each once, in order."""
    return tuple(dict.fromkeys(_INCLUDED.findall(source)))


def with_dependencies(headers: Iterable[str]) -> tuple[str, ...]:
    """The headers with all that they include, each after those that it includes."""
    out: dict[str, None] = {}

    def add(name: str) -> None:
        for other in included(text(name)):
            add(other)
        out.setdefault(name)

    for name in headers:
        add(name)
    return tuple(out)


def capitalised(source: str) -> frozenset[str]:
    """The identifiers with a capital in front in the device headers that a source includes: no macro of the source's
    may have such a name, as it would replace the header's own."""
    known = [name for name in included(source) if name in names()]
    return frozenset().union(*map(_capitalised, with_dependencies(known)))


@cache
def _capitalised(name: str) -> frozenset[str]:
    return frozenset(_CAPITALISED.findall(_COMMENT.sub("", text(name))))


def include_lines(headers: Iterable[str]) -> list[str]:
    """The #include lines of device headers: those that replace functions first, the others by name."""
    ordered = sorted(set(headers), key=lambda name: (name not in STREAMING, name))
    return [f"#include <hipwright/{name}.h>" for name in ordered]


def inlined(source: str) -> str:
    """The source with the text of the device headers, once each, in place of its includes of them.

    The text stands where the first header was included, between marker lines. An unknown header's line stays.
    """
    known = [name for name in included(source) if name in names()]
    if not known:
        return source
    return _with_block(source, _block(known))


def inlined_for(source: str, file: str) -> str:
    """`inlined` for a compiler here that does not find the headers: `#line` keeps the line numbers of `file`."""
    known = [name for name in included(source) if name in names()]
    if not known:
        return source
    first = next(found for found in _INCLUDED.finditer(source) if found[1] in names())
    line = source.count("\n", 0, first.end()) + 1
    return _with_block(source, f'{_block(known)}#line {line} "{file}"\n', rest="\n")


def portable(source: str) -> str:
    """The source with device headers in place of what AMD's compilers do not all have: HIP's bfloat16 header, and
    INFINITY and NAN, which hipRTC does not define. One line longer where it uses these.
    """
    source = BFLOAT16_INCLUDE.sub("#include <hipwright/bfloat16_type.h>", source)
    if _CONSTANTS.search(source) and "constants" not in with_dependencies(n for n in included(source) if n in names()):
        return f"#include <hipwright/constants.h>\n{source}"
    return source


def _with_block(source: str, block: str, rest: str = "") -> str:
    """The source with the block in place of its first include of a known header, and `rest` in place of the others."""
    first = True

    def replaced(found: re.Match[str]) -> str:
        nonlocal first
        if found[1] not in names():
            return found[0]
        begin, first = first, False
        return block if begin else rest

    return _INCLUDED.sub(replaced, source)


def shortened(source: str) -> str:
    """The source with `#include` lines in place of blocks of inlined headers that equal the shipped text."""

    def replaced(found: re.Match[str]) -> str:
        lines = (f"#include <hipwright/{name}.h>\n" for name in found[2].split())
        return "".join(lines) if _is_shipped(found) else found[0]

    return _BLOCK.sub(replaced, source)


def without_inlined(source: str) -> str:
    """The source with empty lines in place of blocks of inlined headers that equal the shipped text."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n") if _is_shipped(found) else found[0], source)


def foreign_id(source: str) -> str:
    """The id of inlined headers that differ from the shipped ones, "" without any."""
    found = (match for match in _BLOCK.finditer(source) if not _is_shipped(match))
    return next((match[1] for match in found), "")


def _is_shipped(block: re.Match[str]) -> bool:
    known = block[2].split()
    return set(known) <= set(names()) and block[0] == _block(known)


def _block(headers: list[str]) -> str:
    """The marked text of headers and of all that they include."""
    texts = [text(name) for name in with_dependencies(headers)]
    standard = dict.fromkeys(line for one in texts for line in _STANDARD.findall(one))
    bodies = [_ONCE.sub("", _STANDARD.sub("", _INCLUDED.sub("", one))) for one in texts]
    begin = BEGIN.format(id=device_headers_id(), names=" ".join(headers))
    return "\n".join([begin, "".join(standard).rstrip("\n"), *(body.rstrip("\n") for body in bodies), END, ""])
