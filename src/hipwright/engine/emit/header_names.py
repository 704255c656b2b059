"""The device headers that a source needs by the names that it uses, and the way from pasted definitions to headers.

Programs written before version 0.3 held the definitions of the headers as text. `with_headers` recognises them by their
whole text, comments aside, and includes the headers instead; a definition that somebody changed stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from hipwright.engine.emit.device_code import defined, header_of
from hipwright.engine.ir.expr import ROUNDING, STORAGE
from hipwright.float8 import FLOAT8
from hipwright.toolchain import device_headers

NARROW = {STORAGE[dtype]: f"store_{'float8' if dtype in FLOAT8 else dtype}" for dtype in ROUNDING}
"""Narrow float types, and the headers by which vectors of floats are stored as them."""
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DEFINED = re.compile(
    r"\bstruct (?:alignas\([^\n]*\) )?(\w+) \{|__device__ [\w<>, *&]+? (\w+)\(|^#define (\w+)", re.MULTILINE
)
_GUARD = re.compile(r"^#(?:pragma once|include [^\n]*|ifndef HIPWRIGHT_STREAMING_[^\n]*)\n", re.MULTILINE)
_CLOSED = re.compile(r".*?^\};?\n|.+\Z", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<hipwright/\w+\.h>[^\n]*\n?", re.MULTILINE)
_COMMENT_LINE = re.compile(r"^[ \t]*//[^\n]*\n", re.MULTILINE)
_COMMENT = re.compile(r"[ \t]*//[^\n]*")
_SAME = (
    ("__device__ inline ", "__device__ "),
    ("#if defined(__AMDGCN__)", "#ifdef __AMDGCN__"),
    ("#if HIPWRIGHT_AMD", "#ifdef __AMDGCN__"),
)


def needed_headers(hip: str) -> set[str]:
    """The headers that define what a source uses by name and does not define itself, those it includes aside."""
    words = set(_WORD.findall(hip))
    own = {name for names in _DEFINED.findall(hip) for name in names if name}
    found = {header for name in words - own for header in _homes().get(name, ())}
    if words & _writers():
        found |= {header for kind, header in NARROW.items() if kind in words}
    if {"MergeSoftmax", "combine_published_partials"} <= words:
        found.add("softmax_block")
    return found


def with_headers(hip: str) -> str:
    """The source with includes in place of the definitions that device headers hold, and of those that it lacks."""
    standard = re.match(r"(?:\s*#include <[^\n]*\n)*", hip)
    at = standard.end() if standard else 0
    body = _INCLUDE.sub("", hip[at:])
    chunks = _definitions_in(body)
    pasted = {number for number, chunk in enumerate(chunks) if _plain(chunk) in _known()}
    streaming = _streaming(chunks[number] for number in pasted)
    body = "".join(chunk for number, chunk in enumerate(chunks) if number not in pasted) if pasted else body
    headers = {*device_headers.included(hip), *needed_headers(body), *streaming}
    if not (headers or pasted):
        return hip
    headers &= {*device_headers.names()}
    lines = "".join(f"{line}\n" for line in device_headers.include_lines(headers))
    return f"{_INCLUDE.sub('', hip[:at])}{lines}\n{_apart(body, headers).lstrip()}"


def _definitions_in(hip: str) -> list[str]:
    """The source in parts: paragraphs that are known definitions, others cut after lines that close a definition."""
    out: list[str] = []
    for paragraph in re.split(r"(?<=\n)(?=\n)", hip):
        known = _plain(paragraph) in _known()
        out += [paragraph] if known else _CLOSED.findall(paragraph)
    return out


def _plain(text: str) -> str:
    """A definition without comments and in the spelling of both forms, pasted and in a header."""
    text = _COMMENT.sub("", _COMMENT_LINE.sub("", text))
    for new, old in _SAME:
        text = text.replace(new, old)
    return " ".join(text.replace("\\\n", " ").split())


def _apart(hip: str, headers: Iterable[str]) -> str:
    """The source, in which functions of its own that an included header defines too have names of their own."""
    known = {name for header in device_headers.with_dependencies(sorted(headers)) for name in defined(header)}
    own = {function or kind for kind, function, _ in _DEFINED.findall(hip)} & known
    return re.sub(rf"\b(?:{'|'.join(sorted(own))})\b", lambda found: f"own_{found[0]}", hip) if own else hip


@cache
def _homes() -> dict[str, tuple[str, ...]]:
    """Each C name -> the headers that define it by that name."""
    out: dict[str, tuple[str, ...]] = {name: (header,) for name, header in header_of().items()}
    for name in defined("integer") & defined("math"):
        out[name] = ("integer", "math")
    return out


@cache
def _writers() -> frozenset[str]:
    """Functions that write vectors, of half types too."""
    writing = (name for name in device_headers.names() if "store_vector<" in device_headers.text(name))
    return frozenset(name for header in writing for name in defined(header))


@cache
def _known() -> frozenset[str]:
    """The definitions of all device headers, as `plain` has them."""
    texts = (_GUARD.sub("", device_headers.text(name)) for name in device_headers.names())
    parts = [part for text in texts for whole in text.split("\n\n") for part in (whole, *_CLOSED.findall(f"{whole}\n"))]
    return frozenset(map(_plain, parts)) - {""}


def _streaming(pasted: Iterable[str]) -> set[str]:
    """The headers of streaming accesses whose definitions are among pasted ones."""
    found = {"streaming_loads": "__builtin_nontemporal_load", "streaming_stores": "__builtin_nontemporal_store"}
    texts = "".join(pasted)
    return {header for header, word in found.items() if word in texts}
