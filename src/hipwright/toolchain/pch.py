"""Precompiled headers: the HIP headers a source begins with are parsed once per target, not once per kernel.

Parsing our headers takes clang four times as long as compiling a small kernel. A precompiled header holds the same
text: it is used only where the source starts by including headers of ours, with nothing before them that could change
their meaning; where the compiler refuses it, the source is compiled without it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hipwright.records import Build, content_key
from hipwright.sandbox import Limits, run_tool
from hipwright.toolchain import clang
from hipwright.toolchain.cache import BuildCache

HEADERS = frozenset({"hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bf16.h"})
SOURCE = "headers.h"
REFUSED = re.compile(r"precompiled|PCH file|AST file")
_BLANK = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE = re.compile(r"#[ \t]*include[ \t]*<([^>\n]+)>[ \t]*(?=\n)")


def leading(source: str) -> tuple[str, ...]:
    """The headers of hipwright that a source includes before anything else."""
    found: list[str] = []
    at = 0
    while True:
        while blank := _BLANK.match(source, at):
            at = blank.end()
        line = _LINE.match(source, at)
        if line is None or line[1] not in HEADERS:
            return tuple(found)
        found.append(line[1])
        at = line.end()


def flags(source: str, front: Sequence[str], cache: BuildCache, *, unsafe: bool) -> tuple[list[str], list[Path]]:
    """(arguments to add to the front end's, files that it must see); both empty without a usable header.

    front: every argument that affects the headers, without knobs. The caller's files must contain `files()`.
    """
    headers = leading(source)
    if not headers:
        return [], []
    key = content_key("pch", *headers, *front, clang.find().id, clang.headers_id())
    known = cache.load(key)
    if known is None:
        known = Build(target="pch", ok=False)
        if data := _compile(headers, front, unsafe):
            known = Build(target="pch", ok=True, blob=cache.put(data))
        cache.store(key, known)
    if not known.ok:
        return [], []
    path = cache.path(known.blob)
    return ["-Xclang", "-include-pch", "-Xclang", str(path)], [path]


def files(source: str) -> dict[str, bytes]:
    """Files to put beside the source: clang looks for the file that a precompiled header was made from."""
    return {SOURCE: _text(leading(source))}


def _text(headers: Sequence[str]) -> bytes:
    return "".join(f"#include <{name}>\n" for name in headers).encode()


def _compile(headers: Sequence[str], front: Sequence[str], unsafe: bool) -> bytes:
    found = clang.find()
    emit = [word for part in ("-emit-pch", "-o", "out.pch", "-fno-pch-timestamp") for word in ("-Xclang", part)]
    result = run_tool(
        [found.program, "clang", *front, "-I", str(clang.INCLUDE), "-fsyntax-only", *emit, SOURCE],
        files={SOURCE: _text(headers)},
        outputs=["out.pch"],
        ro=[Path(found.folder), clang.INCLUDE],
        env={"ZIG_GLOBAL_CACHE_DIR": "zig-cache", "ZIG_LOCAL_CACHE_DIR": "zig-cache"},
        limits=Limits(),
        unsafe=unsafe,
    )
    return result.files.get("out.pch", b"") if result.returncode == 0 else b""
