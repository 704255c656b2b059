"""Reads kernel signatures from HIP source text, without a compiler.

Code-object metadata does not distinguish float from int, so launch arguments are cast by the source's declarations:
`extern "C" __global__ void name(scalars and pointers)`. Comments, strings and directives are blanked first, which keeps
line numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hipwright.errors import ProgramError
from hipwright.float8 import FLOAT8
from hipwright.program.blanking import blank, blank_directives
from hipwright.program.kernel_types import SCALARS, SIZES, VECTORS, canonical
from hipwright.records import Record

_QUALIFIERS = re.compile(r"\b(?:volatile|__restrict__|__restrict|restrict|register|struct)\b")


class Param(Record, frozen=True, kw_only=True):
    """One kernel parameter. `ctype` is the canonical element type ("float", "long long", "float4", "void", ...)."""

    name: str
    ctype: str
    pointer: bool = False
    const: bool = False

    @property
    def kind(self) -> str:
        """The element's kind: a torch dtype name, uint16/uint32/uint64, or "void"."""
        if self.ctype == "void":
            return "void"
        return SCALARS[self.ctype] if self.ctype in SCALARS else VECTORS[self.ctype][0]

    @property
    def align(self) -> int:
        """Alignment in bytes of a pointer argument: the whole vector, or one element for vectors of 3."""
        if self.ctype == "void":
            return 1
        count = VECTORS[self.ctype][1] if self.ctype in VECTORS else 1
        return SIZES[self.kind] * (count if count != 3 else 1)


class Signature(Record, frozen=True, kw_only=True):
    """An entry kernel. `line` counts from 1 in the program file."""

    name: str
    params: tuple[Param, ...]
    line: int


@dataclass(frozen=True)
class KernelSignatures:
    """The kernels of a HIP source: entry kernels, and __global__ functions that cannot be launched (name -> why)."""

    signatures: dict[str, Signature] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)


_GLOBAL = re.compile(r"__global__(?<!\w__global__)(?!\w)")
_EXTERN = re.compile(r'extern\s+"C"')
_EXTERN_BLOCK = re.compile(r'extern\s+"C"\s*\{')


def parse_signatures(hip: str, first_line: int = 1) -> KernelSignatures:
    """Reads every kernel declaration. first_line: the program line of the source's first line.

    Raises ProgramError for an entry kernel with a parameter type that is not supported.
    """
    code = blank(hip)
    aliases = _aliases(code)
    code = blank_directives(code)
    externs = _extern_blocks(code)
    signatures: dict[str, Signature] = {}
    unusable: dict[str, str] = {}
    for match in _GLOBAL.finditer(code):
        line = first_line + code.count("\n", 0, match.start())
        head = code[_statement_start(code, match.start()) : match.start()]
        found = _name_and_params(code, match.end())
        if found is None:
            continue
        name, text, result = found
        if "template" in head:
            unusable[name] = 'it is a template; write a plain kernel, or a thin extern "C" one that calls it'
            continue
        in_block = any(a < match.start() < b for a, b in externs)
        if not in_block and not _EXTERN.search(head):
            unusable[name] = f'it is not extern "C"; write: extern "C" __global__ void {name}(...)'
            continue
        if result != "void":
            raise ProgramError(f"kernel {name} returns {result or 'nothing written'}; an entry kernel is void", line)
        signature = Signature(name=name, params=_params(name, text, aliases, line), line=line)
        before = signatures.get(name)
        if before is not None and before.params != signature.params:
            raise ProgramError(f"kernel {name} is declared twice with different parameters (line {before.line})", line)
        signatures.setdefault(name, signature)
    return KernelSignatures(signatures, {k: v for k, v in unusable.items() if k not in signatures})


_WORDS = r"[A-Za-z_]\w*+(?:[ \t]++\w++)*"  # possessive, so that a long run of blanks is read once
_ALIASES = (
    ("typedef", re.compile(rf"typedef(?<!\wtypedef)\s++(?P<t>{_WORDS})\s++(?P<n>[A-Za-z_]\w*+)\s*+;")),
    ("using", re.compile(rf"using(?<!\wusing)\s++(?P<n>[A-Za-z_]\w*+)\s*+=\s*+(?P<t>{_WORDS})\s*+;")),
    (
        "define",
        re.compile(rf"\n[ \t]*+#[ \t]*+define[ \t]++(?P<n>[A-Za-z_]\w*+)[ \t]++(?P<t>{_WORDS})[ \t]*+$", re.MULTILINE),
    ),
)


def _aliases(code: str) -> dict[str, str | None]:
    """Plain type aliases (`typedef float T;`, `using T = float;`, `#define T float`); None when ambiguous."""
    found: dict[str, str | None] = {}
    text = f"\n{code}"
    for word, pattern in _ALIASES:
        for match in pattern.finditer(text) if word in code else ():
            name, target = match["n"], " ".join(match["t"].split())
            found[name] = target if found.get(name, target) == target else None
    return found


def _statement_start(code: str, at: int) -> int:
    return max(code.rfind(ch, 0, at) for ch in ";{}") + 1


def _extern_blocks(code: str) -> list[tuple[int, int]]:
    """Spans of `extern "C" { ... }`."""
    opens = [m.end() for m in _EXTERN_BLOCK.finditer(code)]
    return [(at, _closing(code, at - 1, "{", "}")) for at in opens]


_BRACES, _PARENS = re.compile(r"[{}]"), re.compile(r"[()]")


def _closing(code: str, at: int, left: str, right: str) -> int:
    """Position of the bracket that closes the one at `at`, or the end of the text."""
    depth = 0
    for match in (_BRACES if left == "{" else _PARENS).finditer(code, at):
        depth += 1 if match.group() == left else -1
        if depth == 0:
            return match.start()
    return len(code)


_NEXT = re.compile(r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<open>\()|(?P<other>\[\[.*?\]\]|[*&:<>]))")
_OPEN = re.compile(r"\s*\(")
_ATTRIBUTE = re.compile(r"\b(?:__launch_bounds__|__attribute__|__declspec|alignas)\b")


def _name_and_params(code: str, at: int) -> tuple[str, str, str] | None:
    """(name, parameter text, return type) of the declaration that follows `__global__`; None if there is none."""
    words: list[str] = []
    while True:
        match = _NEXT.match(code, at)
        if match is None or len(words) > 32:  # no declaration; the limit bounds hostile input
            return None
        at = match.end()
        if match["open"]:
            break
        if match["word"] and _ATTRIBUTE.match(match["word"]):
            paren = _OPEN.match(code, at)
            if paren:
                at = _closing(code, paren.end() - 1, "(", ")") + 1
        elif match["word"]:
            words.append(match["word"])
    if not words:
        return None
    text = code[at : _closing(code, at - 1, "(", ")")]
    result = [w for w in words[:-1] if w not in ("static", "inline", "__forceinline__", "__noinline__", "extern")]
    return words[-1], text, " ".join(result) or "void"


# ---------------------------------------------------------------- parameters


def _params(kernel: str, text: str, aliases: dict[str, str | None], line: int) -> tuple[Param, ...]:
    if text.strip() in ("", "void"):
        return ()
    params: list[Param] = []
    for index, part in enumerate(_split(text)):
        params.append(_param(kernel, index, part, aliases, line))
        line += part.count("\n")
        if params[-1].name in {p.name for p in params[:-1]}:
            raise ProgramError(f"kernel {kernel}: two parameters are called {params[-1].name}", line)
    return tuple(params)


def _split(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        if ch in "([{<":
            depth += 1
        elif ch in ")]}>":
            depth -= 1
        elif ch == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


_PARAM = re.compile(
    r"\s*(?P<type>[\w\s:]*?[\w:])\s*(?P<stars>(?:\*\s*(?:const\b\s*)?)*)"
    r"(?P<name>\b[A-Za-z_]\w*)\s*(?P<array>\[[^\]]*\]\s*)?"
)


def _param(kernel: str, index: int, text: str, aliases: dict[str, str | None], line: int) -> Param:
    line += len(text[: len(text) - len(text.lstrip())].split("\n")) - 1
    where = f"kernel {kernel}, parameter {index + 1} `{' '.join(text.split())}`"
    plain = _QUALIFIERS.sub(" ", text)
    match = _PARAM.fullmatch(plain)
    if match is None:
        what = "references" if "&" in text else "templates" if "<" in text else "default values" if "=" in text else ""
        hint = f"{what} cannot be passed from a plan; " if what else "it needs a type and a name; "
        raise ProgramError(f"{where}: {hint}use a scalar from the list in docs/program.md or `T* name`", line)
    stars = match["stars"].count("*") + (1 if match["array"] else 0)
    if stars > 1:
        raise ProgramError(f"{where}: a pointer to a pointer cannot be passed; pass each tensor by itself", line)
    words = match["type"].split()
    const = "const" in words
    ctype = canonical(" ".join(w for w in words if w != "const"), aliases)
    if ctype is None or (ctype == "void" and not stars):
        raise ProgramError(
            f"{where}: type not known; use bool, an integer type, float, double, half, hip_bfloat16, "
            "or a pointer to one",
            line,
        )
    if ctype in VECTORS and not stars:
        raise ProgramError(f"{where}: a vector type is passed as a pointer only; pass its numbers one by one", line)
    if SCALARS.get(ctype) in FLOAT8 and not stars:
        raise ProgramError(f"{where}: an 8-bit float is passed as a pointer only; pass a float", line)
    return Param(name=match["name"], ctype=ctype, pointer=bool(stars), const=const)
