"""Refuses HIP source that asks which target, compiler or build it is compiled by: a program is one text for all.

Three ways lead to an answer, and each is closed by a rule on the text:

1. a name that compilers or our headers define differently, such as `__AMDGCN__` or `__LINE__`, anywhere in the code;
2. a conditional (`#if`, `#ifdef`, ...) on a name that is neither a knob nor a macro of the program's own: others are
   defined by some compilers only. A macro of the program's own may not have a name that compilers or standard headers
   use, except as a default value (`#ifndef M_PI`, `#define M_PI 3.14159f`, `#endif`);
3. such a name pasted together by `##`.

What targets do differently is in the device headers (toolchain/device_headers.py). Conditionals may ask for two of
their macros, GEMM_MMA and GEMM_MFMA.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache

from hipwright.errors import ProgramError
from hipwright.program.blanking import blank
from hipwright.toolchain import clang

HEADER_SWITCHES = frozenset({"GEMM_MMA", "GEMM_MFMA"})
"""Macros of device headers that conditionals may ask for."""
INSTEAD = (
    "use warpSize at run time for the wave, a knob for a choice, a header of hipwright (docs/device-headers.md) for "
    "what targets do differently"
)
_LOWER = (
    *("clang", "llvm__", "gnu_", "gfx", "amdgcn", "amd64", "x86_64", "i386", "aarch64", "arm", "linux", "unix", "k8"),
    *("nvcc", "nvptx", "nvvm_reflect", "has_", "is_identifier", "is_target", "building_module", "tune_", "code_model"),
    *("pic__", "pie__", "seg_", "hw_", "builtin_cpu_", "builtin_constant_p", "builtin_object_size", "znver", "core2"),
    *("builtin_dynamic_object_size", "builtin_is_constant_evaluated", "builtin_LINE", "builtin_FILE", "builtin_COLUMN"),
    *("builtin_FUNCTION", "builtin_source_location", "builtin_amdgcn_is_", "builtin_amdgcn_processor_is"),
)
"""How names begin, after two underscores, that only some compilers define or that tell about the build."""
_SAME = (
    r"__(?:ATOMIC_\w+|HIP_MEMORY_SCOPE_\w+|VA_ARGS__|VA_OPT__|INT_MAX__|LONG_MAX__|LONG_LONG_MAX__|CHAR_BIT__|"
    r"(?:FLT|DBL)_(?:MAX|MIN|EPSILON|DENORM_MIN|DIG|MANT_DIG)__)\b"
)
"""Names in capitals that mean the same to every compiler."""
_ASKED = re.compile(
    rf"\b(?!{_SAME})(?:__[A-Z]\w*|__(?:{'|'.join(_LOWER)})\w*|_(?:LP64|GNU_SOURCE|OPENMP|MSC_VER|WIN32|REENTRANT)\w*|"
    r"HIPWRIGHT_\w+|HIP_VERSION\w*|HIPRTC_\w+|CUDA_VERSION|CUDART_VERSION|linux|unix)\b"
)
_LONG_DOUBLE = re.compile(r"\blong\s+double\b|\bdouble\s+long\b")
_INTERNAL = re.compile(r"\bHW_\w+")
_VENDOR = re.compile(r"_[_A-Z]|CUDA|CUDART|CU_|NV_|NVCC|NVRTC|NVIDIA|HIP|ROCM|AMD_|AMDGPU|GCN_|HSA_|TORCH_|C10_|hw_")
_STANDARD = re.compile(
    r"(?:M_\w+|(?:FLT|DBL|LDBL|U?CHAR|SCHAR|U?SHRT|U?INT\w*|U?LONG|U?LLONG|SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC)_\w+|"
    r"NULL|EOF|NAN|INFINITY|HUGE_VAL\w*|FP_\w+|EXIT_\w+|RAND_MAX|BUFSIZ|NDEBUG|assert|offsetof|errno|math_errhandling|"
    r"is(?:nan|inf|finite|normal)|signbit|min|max|abs|complex|I|warpSize|true|false|bool)\Z"
)
_SPLICE = re.compile(r"\\[ \t]*\n")
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(\w+)([^\n]*)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.'])[A-Za-z_]\w*")
_MACRO = re.compile(r"\s*(\w+)(\([^)]*\))?(.*)", re.DOTALL)
_WORDS = frozenset({"defined", "true", "false", "and", "or", "not", "xor", "bitand", "bitor", "compl", "__cplusplus"})
_CONDITIONALS = frozenset({"if", "elif", "ifdef", "ifndef", "elifdef", "elifndef"})
_PASTE = re.compile(r"##|%:%:")
_TRIGRAPH = re.compile(r"\?\?[=/]")
_OUTSIDE = re.compile(r"[<\"]\s*(?:hw|torchlite)/")


def check_target_questions(source: str, first_line: int, knobs: Collection[str]) -> None:
    """Raises ProgramError for the first question in HIP source. first_line: the program line of the source's first."""
    text = _JoinedSource(source, first_line)
    if found := _ASKED.search(text.code) or _long_double(text.code) or _internal(text.code):
        raise _refused(found.group(), text.line(found.start()))
    if found := _TRIGRAPH.search(text.code):
        raise ProgramError("HIP holds a trigraph, which not every compiler reads", text.line(found.start()))
    if "#" in text.code or "%:" in text.code:
        _check_pastes(text)
        _ConditionalCheck(text, frozenset(knobs)).run()


@dataclass(frozen=True)
class _Directive:
    """A preprocessor directive: its word, what follows, and where it begins in the joined code."""

    word: str
    rest: str
    at: int


class _JoinedSource:
    """A source without comments, literals and the line ends that a backslash hides."""

    def __init__(self, source: str, first_line: int) -> None:
        self._splices: list[int] = []
        joined, before = [], 0
        for found in _SPLICE.finditer(source):
            joined.append(source[before : found.start()])
            self._splices.append(sum(map(len, joined)))
            before = found.end()
        self.text = "".join([*joined, source[before:]])
        self.code = blank(self.text)
        self._first_line = first_line

    def line(self, at: int) -> int:
        """The program line of a place in the joined code."""
        return self._first_line + self.code.count("\n", 0, at) + bisect_left(self._splices, at)

    def directives(self) -> Iterator[_Directive]:
        """All directives, in order."""
        for found in _DIRECTIVE.finditer(self.code):
            yield _Directive(found[1], found[2], found.start())


class _ConditionalCheck:
    """Checks that conditionals ask only for knobs and for macros of the program's own."""

    def __init__(self, text: _JoinedSource, knobs: frozenset[str]) -> None:
        self._text, self._knobs = text, knobs
        self._directives = list(text.directives())
        self._bodies: dict[str, list[str]] = {}  # the program's macros, wherever they are defined
        for one in self._directives:
            if one.word == "define" and (found := _MACRO.match(one.rest)):
                self._bodies.setdefault(found[1], []).append(found[3])

    def run(self) -> None:
        """Raises ProgramError for the first other name."""
        for number, one in enumerate(self._directives):
            if one.word == "define" and (found := re.search(r"\bdefined\b.*", one.rest)):
                self._check(one, found.group())
            elif one.word in _CONDITIONALS and not self._is_default(number):
                self._check(one, one.rest)
            elif one.word in ("include", "include_next", "import", "embed"):
                self._check_include(one)

    def _check(self, one: _Directive, expression: str) -> None:
        for name in self._names(expression, set()):
            if name in self._knobs or name in HEADER_SWITCHES:
                continue
            if name not in self._bodies or _VENDOR.match(name) or _STANDARD.match(name):
                raise _refused(name, self._text.line(one.at))

    def _names(self, expression: str, seen: set[str]) -> Iterator[str]:
        """The names that an expression asks for, by way of the program's macros too."""
        for name in _NAME.findall(expression):
            if name not in _WORDS and name not in seen:
                seen.add(name)
                yield name
                if name not in self._knobs:
                    for body in self._bodies.get(name, ()):
                        yield from self._names(body, seen)

    def _is_default(self, number: int) -> bool:
        """Whether `#ifndef NAME` only gives the name a value: `#define NAME ...` and `#endif` follow at once."""
        one, *after = self._directives[number : number + 3]
        name = one.rest.strip()
        if one.word != "ifndef" or len(after) < 2 or _VENDOR.match(name):
            return False
        defines = after[0].word == "define" and after[0].rest.split()[:1] == [name]
        code = self._text.code
        lines = (code.count("\n", one.at, after[0].at), code[after[0].at : after[1].at].strip().count("\n"))
        return defines and after[1].word == "endif" and lines == (1, 0)

    def _check_include(self, one: _Directive) -> None:
        line = self._text.text[one.at :].partition("\n")[0]
        if _OUTSIDE.search(line):
            raise ProgramError(
                "HIP includes an internal header; include hip/..., hipwright/... or a standard one",
                self._text.line(one.at),
            )
        if not re.search(r"[<\"]", line):
            raise ProgramError("HIP includes a header whose name is a macro; write the name", self._text.line(one.at))


def _refused(name: str, line: int) -> ProgramError:
    return ProgramError(
        f"HIP asks for {name}, which tells the target or the compiler; a program is one text for all: {INSTEAD}", line
    )


def _long_double(code: str) -> re.Match[str] | None:
    return _LONG_DOUBLE.search(code) if "double" in code else None


def _internal(code: str) -> re.Match[str] | None:
    """A macro of the shipped headers' own, such as HW_WAVE."""
    if "HW_" not in code:
        return None
    return next((found for found in _INTERNAL.finditer(code) if found.group() in _internal_macros()), None)


@cache
def _internal_macros() -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in clang.INCLUDE.rglob("*") if path.is_file())
    return frozenset({"HW_WAVE", "HW_AMD_SIDE"}.union(*(re.findall(r"\bHW_\w+", text) for text in texts)))


# ---------------------------------------------------------------- names pasted together


def _check_pastes(text: _JoinedSource) -> None:
    """Refuses `##` in a source whose names, put together, could form a name that is refused by itself."""
    found = _PASTE.search(text.code)
    if found is None:
        return
    names = set(re.findall(r"\w+", text.code))
    for name in sorted(names):
        if (name[0] == "_" and _begins_asked(name)) or any(_pasted(whole, name, names) for whole in _whole_names(name)):
            raise ProgramError(
                f"HIP pastes names together by ##, and {name} can become the start of one that tells the target or the "
                f"compiler: {INSTEAD}",
                text.line(found.start()),
            )


def _begins_asked(name: str) -> bool:
    """Whether a name could be the start of one that is refused: by itself it is none."""
    return name in ("_", "__") or any(f"__{stem}".startswith(name) for stem in _LOWER)


def _whole_names(start: str) -> Iterator[str]:
    """The refused names without leading underscores that begin with `start`."""
    others = ("HIP_VERSION", "CUDA_VERSION", "CUDART_VERSION", "linux", "unix", *_internal_macros())
    return (name for name in others if name != start and name.startswith(start))


def _pasted(whole: str, start: str, names: Collection[str]) -> bool:
    """Whether `whole` is `start` followed by one or two of the names."""
    rest = whole[len(start) :]
    return rest in names or any(rest[:k] in names and rest[k:] in names for k in range(1, len(rest)))
