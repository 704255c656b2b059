"""Refuses HIP source that keeps state between calls, or detects the compiler or verifier, on any target.

The check is textual and runs at parse time, so it also holds where only a GPU's own compiler is available. The cpu
target also checks the compiled code (toolchain/cpu/state.py), where macros hide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hipwright.errors import ProgramError
from hipwright.program.blanking import blank, spaces

# names that are defined on the verifying host but not on a GPU, or by one compiler only
_PROBES = re.compile(
    r"\b(?:__x86_64__|__x86_64|__amd64__|__amd64|__i386__|__aarch64__|__arm__|__SSE\w*__|__AVX\w*__|__FMA__|__F16C__|"
    r"__linux__|__linux|__unix__|_WIN32|__APPLE__|__CUDACC_RTC__|__HIPCC_RTC__|HW_(?:AMD|OCML|CPU|HOST|FN|DEV|NVIDIA)|__hw_\w+|__has_include\w*|"
    r"__has_embed|__FILE__|__FILE_NAME__|__BASE_FILE__|__DATE__|__TIME__|__TIMESTAMP__|__INCLUDE_LEVEL__)\b"
)
# a pattern is only tried when the source contains one of its stems: few do, and substring search is cheap
_PROBE_STEMS = (
    "__x86_64",
    "__amd64",
    "__i386__",
    "__aarch64__",
    "__arm__",
    "__SSE",
    "__AVX",
    "__FMA__",
    "__F16C__",
    "__linux",
    "__unix__",
    "_WIN32",
    "__APPLE__",
    "C_RTC__",
    "HW_",
    "__hw_",
    "__has_",
    "__FILE",
    "__BASE_FILE__",
    "__DATE__",
    "__TIME",
    "__INCLUDE_LEVEL__",
)
_ATTRIBUTE_STEMS = ("__attribute__", "[[")
_HOST_STEMS = ("structor", "init_priority", "ifunc", "weakref", ".incbin", ".include")
_STEMS = (_PROBE_STEMS, _ATTRIBUTE_STEMS, _HOST_STEMS)
_LITERAL = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|' + r"'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'|//[^\n]*+"
_NO_BLOCK_COMMENTS = re.compile(_LITERAL, re.DOTALL)
_COMMENTS = re.compile(_LITERAL + r"|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+", re.DOTALL)
# code or data for the host that loads the program: an exported file would bring it there
_ATTRIBUTE = re.compile(r"__attribute__(?<!\w__attribute__)\s*\(\(.*?\)\s*\)|\[\[.*?\]\]", re.DOTALL)
_HOST_ATTRIBUTE = re.compile(r"\b(?:__)?(?:section|alias)(?:__)?\b")
_HOST_NAMES = re.compile(
    r"\b(?:__)?(?:constructor|destructor|init_priority|ifunc|weakref)(?:__)?\b|\.(?:incbin|include)\b(?=\s*\\?\")"
)
# a variable declaration that is not constant: `__device__ float kept[64];`, `static int calls = 0;`. Tried only
# at the first word after punctuation, with possessive repeats, so that long comments (blanked) cost linear time
_STORED = re.compile(r"(?:__device__|__managed__|static)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")
_VARIABLE = re.compile(
    r"\s*+(?=[\w\s]*?\b(?:__device__|__managed__|static)\b)"
    r"((?:\w++\s++|\w++\s*+<[^;{}()<>]*+>\s++)+[*\s]*+)(\w++)\s*+(?=[\[;=,{])"
)
_CONSTANT = re.compile(
    r"\b(?:const|constexpr|__constant__|__shared__|struct|class|enum|union|using|typedef|namespace|return)\b"
)

# `T operator[](int k) const` declares no variable, unless `operator` is a macro: a directive names it, or joined lines
# might
_RENAMED = re.compile(r"(?:#|%:|\?\?=)[^\n]*\boperator\b|(?:\\|\?\?/)\s*\n")


def check_source(source: str, first_line: int) -> None:
    """Raises ProgramError for the first violation in HIP source. first_line: the program line of the source's first."""
    probes, attributes, host = (any(stem in source for stem in stems) for stems in _STEMS)
    if probes or attributes or host:
        bare = _COMMENTS.sub(_bare, source)
        if probes:
            _check_probes(bare, first_line)
        if attributes or host:
            _check_host(bare, first_line, attributes=attributes, host=host)
    code = blank(source)
    overloads = "operator" in code and not _RENAMED.search(code)
    for match in _variables(code):
        if not (_CONSTANT.search(match.group(1)) or (overloads and match.group(2) == "operator")):
            raise ProgramError(
                f"HIP keeps the variable {match.group(2)} between calls; a program has no state: make the memory in "
                "the plan (torch.zeros) and pass it, or declare it const",
                _line(code, match.start(2), first_line),
            )


def _check_probes(bare: str, first_line: int) -> None:
    """Refuses macros that identify the compiler or host. bare: the source without comments."""
    if found := _PROBES.search(bare):
        raise ProgramError(
            f"HIP asks for {found.group()}, which tells who compiles or verifies it; a kernel does the same "
            "everywhere: use warpSize at run time, a knob or a header of hipwright",
            _line(bare, found.start(), first_line),
        )


def _check_host(bare: str, first_line: int, *, attributes: bool, host: bool) -> None:
    """Refuses attributes and directives that act on the compiling or loading host.

    attributes, host: whether the source may contain attributes, or names of either.
    """
    attribute_text = "|".join(match.group() for match in _ATTRIBUTE.finditer(bare)) if attributes else ""
    if (found := _HOST_ATTRIBUTE.search(attribute_text)) or (found := _HOST_NAMES.search(bare) if host else None):
        line = _line(bare, found.start(), first_line) if found.re is _HOST_NAMES else first_line
        raise ProgramError(f"HIP says {found.group()}, which acts on the machine that compiles or loads it", line)


def _variables(code: str) -> Iterator[re.Match[str]]:
    """Variable declarations with __device__, __managed__ or static: group 1 has type and qualifiers, 2 the name."""
    backwards, size, before, end = "", len(code), 0, 0
    for word in _STORED.finditer(code):
        backwards = backwards or code[::-1]
        mark = _PUNCTUATION.search(backwards, size - word.start(), size - before)
        seen, before = mark is None and before > 0, word.end()
        start = size - mark.start() if mark else 0
        if not seen and start >= end and (match := _VARIABLE.match(code, start)):
            end = match.end()
            yield match


def _bare(match: re.Match[str]) -> str:
    text = match.group()
    if text[0] in "\"'":
        return text
    if text[1] == "*" and (
        len(text) < 4 or text[-2:] != "*/"
    ):  # an unterminated comment is none, and nothing after it is
        return text[:2] + _NO_BLOCK_COMMENTS.sub(_bare, text[2:])
    return spaces(text)


def _line(code: str, at: int, first_line: int) -> int:
    return first_line + code.count("\n", 0, at)
