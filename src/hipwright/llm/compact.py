"""A short form of programs, for models with a small context: `shorten` and its way back, `expand`.

What the engine writes is mostly its helper functions, the same in every program. The short form leaves them out (they
are recognised by their whole text, so a helper that somebody changed stays), leaves out the standard includes and
comments, writes the chosen knobs as plain constants ahead of the source, and gives kernels, results and locals short
names that do not depend on the task. `expand` puts back by name what the source calls and does not define. The prompt's
side, the short form of a reference, is compact_prompt.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from hipwright.engine.emit.device_code import definitions, device_code, reserved
from hipwright.llm.compact_prompt import prompt
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Program

INCLUDES = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n#include <hip/hip_bf16.h>\n"
OPEN, CLOSE = "HIP = r'''\n", "\n'''\n"

BEST_BLOCKS = {"ArgMax": "block_reduce_argmax", "ArgMin": "block_reduce_argmin"}
"""Functors, and the key of the overload of block_reduce for them."""
MOMENTS = {"lane_reduce": "lane_reduce_moments", "block_reduce": "block_reduce_moments"}
"""Reductions, and the key of their overload for moments."""
HALVES = {"__half": "store_vector_float16", "__hip_bfloat16": "store_vector_bfloat16"}
"""Half types, and the key of the overload that packs of them are written by."""
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_KNOB = re.compile(r"^([A-Z]\w*) = knob\((\d+), choices=\[[^\]]*\]\)[^\n]*\n", re.MULTILINE)
_CONSTANT = re.compile(r"^([A-Z]\w*) = (\d+)\n", re.MULTILINE)
_ENTRY = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^\n]*\)\s+)?(\w+)\(")
_MADE = re.compile(r"^    (\w+) = torch\.(?:empty|zeros)\(", re.MULTILINE)
_ASSIGNED = re.compile(r"^    (\w+) = ", re.MULTILINE)
_TYPES = r"(?:auto|bool|int|long|float|double|__half|(?:Tile|Moments|SoftmaxState|IndexedValue)<[^;=\n]*?>)"
_LOCAL = re.compile(rf"^\s+(const |constexpr )?{_TYPES} (\w+)(?:\[[^\n]*?\])?(?: =|;)", re.MULTILINE)
_DEFINED = re.compile(r"\bstruct (?:alignas\([^\n]*\) )?(\w+) \{|__device__ [\w<>, *&]+? (\w+)\(")
_OF = re.compile(r"(\w+?)_(?:tile|value|row)_?\d*\Z")


def shorten(text: str) -> str:
    """The short form of a program's text. A text of another form than the engine's comes back with less left out."""
    text = text.replace("\r\n", "\n")
    head, opened, rest = text.partition(OPEN)
    hip, closed, plan = rest.partition(CLOSE)
    if not opened or not closed:
        return text
    hip = _without_helpers(_without_comments(hip.replace(INCLUDES, "", 1)))
    around = _KNOB.sub(r"\1 = \2\n", head + "\n" + plan)
    plan = re.sub(r"\n{2,}", "\n", _without_messages(_CONSTANT.sub("", around))).lstrip("\n")
    words = set(_WORD.findall(hip + plan))
    constants = [f"{name} = {value}\n" for name, value in _CONSTANT.findall(around) if name in words]
    return "".join(constants) + _renamed(OPEN + re.sub(r"\n{2,}", "\n", hip).strip("\n") + CLOSE + plan)


def shortened(program: Program) -> str:
    """The short form of a program with its chosen knobs."""
    return shorten(text_with_knobs(program))


def expand(text: str) -> str:
    """A program's text from its short form: includes, the engine's helpers that it calls, and knobs. Never raises.

    A text that is not in the short form comes back as it is.
    """
    text = text.replace("\r\n", "\n")
    head, opened, rest = text.partition(OPEN)
    hip, closed, plan = rest.partition(CLOSE)
    if not opened or not closed:
        return text
    words = set(_WORD.findall(hip))
    helpers = device_code(_needed(hip, words))
    start = "" if INCLUDES in hip else INCLUDES + "\n"

    def knob(found: re.Match[str]) -> str:
        name, value = found.groups()
        return f"{name} = knob({value}, choices=[{value}])\n" if name in words else found[0]

    head, plan = (_CONSTANT.sub(knob, part) for part in (head, plan))
    return head + OPEN + start + (helpers + "\n" if helpers else "") + hip + CLOSE + plan


# ---------------------------------------------------------------- helpers


def _chunks(hip: str) -> list[str]:
    """Source cut after each line that closes a definition."""
    return re.findall(r".*?^\};?\n|.+\Z", hip + "\n", re.MULTILINE | re.DOTALL)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """Every definition that the engine may put ahead of its kernels, without comments."""
    texts = (_without_comments(device_code([use])) for use in definitions())
    return frozenset(chunk.strip() for text in texts for chunk in _chunks(text))


@lru_cache(maxsize=1)
def _uses() -> dict[str, tuple[tuple[str, str], ...]]:
    """C name -> the definitions of that name; overloads, whose key is another, are left out."""
    uses: dict[str, tuple[tuple[str, str], ...]] = {}
    for use, one in definitions().items():
        for name in one.names if one.key in one.names else ():
            uses[name] = (*uses.get(name, ()), use)
    return uses


@lru_cache(maxsize=1)
def _writers() -> frozenset[str]:
    """Functions that write vectors, of half types too."""
    found = (one for one in definitions().values() if "store_vector<" in one.text)
    return frozenset(name for one in found for name in one.names if name != "store_vector")


def _overloads(hip: str, words: set[str], defined: set[str]) -> Iterator[str]:
    """Keys of the overloads that a source needs: their names alone do not tell."""
    if "MergeMoments" in words:
        yield from (key for name, key in MOMENTS.items() if name in words - defined)
    if "block_reduce" in words - defined:
        yield from (key for name, key in BEST_BLOCKS.items() if name in words)
    if words & _writers() and "store_vector" not in defined:
        yield from (key for kind, key in HALVES.items() if re.search(rf"\b{kind}\b", hip))


def _needed(hip: str, words: Iterable[str]) -> set[tuple[str, str]]:
    """The definitions of engine/device that a source uses by name and does not define itself."""
    words = set(words)
    defined = {one or other for one, other in _DEFINED.findall(hip)}
    needed = {(key, "") for key in _overloads(hip, words, defined)}
    needed |= {use for name in words - defined for use in _uses().get(name, ())}
    doubles = re.search(r"\bdouble\b", hip) is not None
    return {(key, kind) for key, kind in needed if kind != "double" or doubles}


def _without_helpers(hip: str) -> str:
    """The source without the engine's definitions; one that `expand` would not put back stays."""
    chunks = _chunks(hip)
    ours = {number for number, chunk in enumerate(chunks) if chunk.strip() in _known()}
    rest = "".join(chunk for number, chunk in enumerate(chunks) if number not in ours)
    back = _chunks(_without_comments(device_code(_needed(rest, set(_WORD.findall(rest))))))
    restored = {chunk.strip() for chunk in back}
    return "".join(c for number, c in enumerate(chunks) if number not in ours or c.strip() not in restored)


def _without_comments(hip: str) -> str:
    """No comments: whole lines of them go with their line."""
    return re.sub(r"[ \t]*//[^\n]*", "", re.sub(r"^[ \t]*//[^\n]*\n", "", hip, flags=re.MULTILINE))


def _without_messages(plan: str) -> str:
    """Guards without their reason."""
    return re.sub(r'^(    assert .*), "[^"\n]*"$', r"\1", plan, flags=re.MULTILINE)


# ---------------------------------------------------------------- names


def _renamed(text: str) -> str:
    """Kernels become run, run2, ...; tensors that the plan makes out, out2, ...; locals t, t2, ... and s, s2, ..."""
    hip, plan = text.partition(CLOSE)[::2]
    kernels, made = dict.fromkeys(_ENTRY.findall(hip)), dict.fromkeys(_MADE.findall(plan))
    shared = dict.fromkeys([*kernels, *made])
    # what the plan calls after a kernel follows its name
    owned = {name: k for name in _ASSIGNED.findall(plan) for k in kernels if name.startswith(f"{k}_")}
    owned = {name: k for name, k in owned.items() if name not in shared}
    parts = re.split(r'^(?=extern "C")', hip, flags=re.MULTILINE)
    locals_ = [_locals(part, {*shared, *owned}) for part in parts]
    taken = set(reserved()) | set(_WORD.findall(text)) - {
        *shared,
        *owned,
        *(name for table in locals_ for name in table),
    }
    names = {k: _fresh("run", taken) for k in kernels} | {m: _fresh("out", taken) for m in made}
    names |= {name: _fresh(names[k] + name[len(k) :], taken) for name, k in owned.items()}
    bodies = [_with_names(part, names | _drawn(table, taken)) for part, table in zip(parts, locals_, strict=True)]
    return "".join(bodies) + CLOSE + _with_names(plan, names)


def _locals(kernel: str, shared: set[str]) -> dict[str, str]:
    """What a kernel declares and may be called otherwise, with the first letter of its new name.

    What belongs to an input (x_tile, x_value) is called after it already.
    """
    inputs = set(re.findall(r"(\w+)(?:,|\))", kernel.partition("{")[0])) - shared
    table: dict[str, str] = {}
    for constant, name in _LOCAL.findall(kernel):
        of = _OF.match(name)
        if not (name in reserved() or name in shared or name == "items" or (of and {of[1], f"{of[1]}_"} & inputs)):
            table.setdefault(name, "t" if constant else "s")
    return table


def _drawn(table: dict[str, str], taken: set[str]) -> dict[str, str]:
    """Each kernel counts its own locals from the first."""
    taken = set(taken)
    return {name: _fresh(letter, taken) for name, letter in table.items()}


def _fresh(base: str, taken: set[str]) -> str:
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}{count}" if not base[-1].isdigit() else f"{base}_{count}"
    taken.add(name)
    return name


def _with_names(text: str, table: dict[str, str]) -> str:
    return _WORD.sub(lambda found: table.get(found[0], found[0]), text)


__all__ = ["expand", "prompt", "shorten", "shortened"]
