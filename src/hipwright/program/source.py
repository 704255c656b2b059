"""What HIP source may not say, on any target: state between calls, and questions about who is looking.

Textual and early, so that it holds where nothing but a GPU's own compiler is at hand. The cpu target reads the compiled
code as well (toolchain/cpu_state.py), where no macro hides anything.
"""

from __future__ import annotations

import re

from hipwright.errors import ProgramError
from hipwright.program.signature import blank

# names that are defined on a machine that verifies and not on a GPU, or by one way of compiling only
_PROBES = re.compile(
    r"\b(?:__x86_64__|__x86_64|__amd64__|__amd64|__i386__|__aarch64__|__arm__|__SSE\w*__|__AVX\w*__|__FMA__|__F16C__|"
    r"__linux__|__linux|__unix__|_WIN32|__APPLE__|__CUDACC_RTC__|__HIPCC_RTC__|HW_(?:AMD|OCML|CPU|HOST|FN|DEV|NVIDIA)|__hw_\w+|__has_include\w*|"
    r"__has_embed|__FILE__|__FILE_NAME__|__BASE_FILE__|__DATE__|__TIME__|__TIMESTAMP__|__INCLUDE_LEVEL__)\b"
)
_COMMENTS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
# code or data for the machine that loads the source, not for the GPU: an exported file would carry it there
_ATTRIBUTE = re.compile(r"\b__attribute__\s*\(\(.*?\)\s*\)|\[\[.*?\]\]", re.DOTALL)
_HOST_ATTRIBUTE = re.compile(r"\b(?:__)?(?:section|alias)(?:__)?\b")
_HOST = re.compile(
    r"\b(?:__)?(?:constructor|destructor|init_priority|ifunc|weakref)(?:__)?\b|\.(?:incbin|include)\b(?=\s*\\?\")"
)
# `__device__ float kept[64];`, `static int calls = 0;`: a declaration that is no function and not constant. It is tried
# at the first word after punctuation only, with possessive repeats: long comments (blanks here) cost linear time
_VARIABLE = re.compile(
    r"(?<![\w\s])\s*+(?=[\w\s]*?\b(?:__device__|__managed__|static)\b)"
    r"((?:\w++\s++|\w++\s*+<[^;{}()<>]*+>\s++)+[*\s]*+)(\w++)\s*+(?=[\[;=,{])"
)
_CONSTANT = re.compile(
    r"\b(?:const|constexpr|__constant__|__shared__|struct|class|enum|union|using|typedef|namespace|return)\b"
)


def check_source(source: str, first_line: int) -> None:
    """Raise ProgramError for the first thing that HIP source may not say. first_line: of the source in the program."""
    bare = _COMMENTS.sub(_spaces, source)
    if found := _PROBES.search(bare):
        raise ProgramError(
            f"HIP asks for {found.group()}, which tells who compiles or verifies it; a kernel does the same "
            "everywhere: tell targets apart by __AMDGCN__, __gfx942__ and the like, or by warpSize",
            _line(bare, found.start(), first_line),
        )
    attributes = "|".join(match.group() for match in _ATTRIBUTE.finditer(bare))
    if (found := _HOST_ATTRIBUTE.search(attributes)) or (found := _HOST.search(bare)):
        line = _line(bare, found.start(), first_line) if found.re is _HOST else first_line
        raise ProgramError(f"HIP says {found.group()}, which acts on the machine that compiles or loads it", line)
    code = blank(source)
    for match in _VARIABLE.finditer(code):
        if not _CONSTANT.search(match.group(1)):
            raise ProgramError(
                f"HIP keeps the variable {match.group(2)} between calls; a program has no state: make the memory in "
                "the plan (torch.zeros) and pass it, or declare it const",
                _line(code, match.start(2), first_line),
            )


def _spaces(match: re.Match[str]) -> str:
    text = match.group()
    return text if text[0] in "\"'" else re.sub(r"[^\n]", " ", text)


def _line(code: str, at: int, first_line: int) -> int:
    return first_line + code.count("\n", 0, at)
