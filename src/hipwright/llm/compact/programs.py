"""A short form of programs, for models with a small context: `shorten` and its way back, `expand`.

The short form leaves out includes and comments, writes the chosen knobs as plain constants ahead of the source, gives
kernels, results and locals short names that do not depend on the task, and has a statement for each operator of a chain
(statements.py). `expand` includes by name the device headers that define what the source calls and does not define. The
prompt's side, the short form of a reference, is reference.py.
"""

from __future__ import annotations

import re

from hipwright.engine.emit.device_code import reserved
from hipwright.engine.emit.header_names import needed_headers, with_headers
from hipwright.llm.compact.statements import NAMES, as_statements
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Program
from hipwright.toolchain import device_headers

INCLUDES = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n"
_BFLOAT16 = "#include <hip/hip_bf16.h>\n"  # in programs of version 0.2, where now the type's device header stands
OPEN, CLOSE = "HIP = r'''\n", "\n'''\n"

_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_KNOB = re.compile(r"^([A-Z]\w*) = knob\((\d+), choices=\[[^\]]*\]\)[^\n]*\n", re.MULTILINE)
_CONSTANT = re.compile(r"^([A-Z]\w*) = (\d+)\n", re.MULTILINE)
_ENTRY = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^\n]*\)\s+)?(\w+)\(")
_MADE = re.compile(r"^    (\w+) = torch\.(?:empty|zeros)\(", re.MULTILINE)
_ASSIGNED = re.compile(r"^    (\w+) = ", re.MULTILINE)
_TYPES = r"(?:auto|bool|int|long|float|double|__half|(?:Tile|Moments|SoftmaxState|IndexedValue)<[^;=\n]*?>)"
_LOCAL = re.compile(rf"^\s+(const |constexpr )?(?!auto {NAMES} =){_TYPES} (\w+)(?:\[[^\n]*?\])?(?: =|;)", re.MULTILINE)
_HEADER = re.compile(r"^#include <hipwright/\w+\.h>\n", re.MULTILINE)
_OF = re.compile(r"(\w+?)_(?:tile|value|row)_?\d*\Z")


def shorten(text: str) -> str:
    """The short form of a program's text. A text of another form than the engine's comes back with less left out."""
    text = text.replace("\r\n", "\n")
    head, opened, rest = text.partition(OPEN)
    hip, closed, plan = rest.partition(CLOSE)
    if not opened or not closed:
        return text
    hip = _without_comments(_without_headers(_without_includes(hip)))
    around = _KNOB.sub(r"\1 = \2\n", head + "\n" + plan)
    plan = re.sub(r"\n{2,}", "\n", _without_messages(_CONSTANT.sub("", around))).lstrip("\n")
    words = set(_WORD.findall(hip + plan))
    constants = [f"{name} = {value}\n" for name, value in _CONSTANT.findall(around) if name in words]
    hip, plan = _renamed(re.sub(r"\n{2,}", "\n", hip).strip("\n"), plan)
    return "".join(constants) + OPEN + as_statements(hip) + CLOSE + plan


def shortened(program: Program) -> str:
    """The short form of a program with its chosen knobs."""
    return shorten(text_with_knobs(program))


def expand(text: str) -> str:
    """A program's text from its short form, with includes of the device headers that it uses, and knobs. Never raises.

    A text that is not in the short form comes back as it is.
    """
    text = text.replace("\r\n", "\n")
    head, opened, rest = text.partition(OPEN)
    hip, closed, plan = rest.partition(CLOSE)
    if not opened or not closed:
        return text
    words = set(_WORD.findall(hip))
    hip = with_headers(_without_includes(hip)).lstrip("\n")

    def knob(found: re.Match[str]) -> str:
        name, value = found.groups()
        return f"{name} = knob({value}, choices=[{value}])\n" if name in words else found[0]

    head, plan = (_CONSTANT.sub(knob, part) for part in (head, plan))
    return head + OPEN + INCLUDES + ("" if hip.startswith("#include <hipwright/") else "\n") + hip + CLOSE + plan


# ---------------------------------------------------------------- headers


def _without_includes(hip: str) -> str:
    """The source without the include lines of HIP that the engine writes."""
    return hip.replace(INCLUDES + _BFLOAT16, "", 1).replace(INCLUDES, "", 1)


def _without_headers(hip: str) -> str:
    """The source without the includes that `expand` puts back; an older program's definitions become includes."""
    hip = with_headers(hip)
    body = _HEADER.sub("", hip)
    left = {*device_headers.included(hip)} - needed_headers(body)
    return "".join(f"{line}\n" for line in device_headers.include_lines(left)) + body


def _without_comments(hip: str) -> str:
    """No comments: whole lines of them go with their line."""
    return re.sub(r"[ \t]*//[^\n]*", "", re.sub(r"^[ \t]*//[^\n]*\n", "", hip, flags=re.MULTILINE))


def _without_messages(plan: str) -> str:
    """Guards without their reason."""
    return re.sub(r'^(    assert .*), "[^"\n]*"$', r"\1", plan, flags=re.MULTILINE)


# ---------------------------------------------------------------- names


def _renamed(hip: str, plan: str) -> tuple[str, str]:
    """Kernels become run, run2, ...; tensors that the plan makes out, out2, ...; locals t, t2, ... and s, s2, ..."""
    kernels, made = dict.fromkeys(_ENTRY.findall(hip)), dict.fromkeys(_MADE.findall(plan))
    shared = dict.fromkeys([*kernels, *made])
    # what the plan calls after a kernel follows its name
    owned = {name: k for name in _ASSIGNED.findall(plan) for k in kernels if name.startswith(f"{k}_")}
    owned = {name: k for name, k in owned.items() if name not in shared}
    parts = re.split(r'^(?=extern "C")', hip, flags=re.MULTILINE)
    locals_ = [_locals(part, {*shared, *owned}) for part in parts]
    taken = set(reserved()) | set(_WORD.findall(OPEN + hip + CLOSE + plan)) - {
        *shared,
        *owned,
        *(name for table in locals_ for name in table),
    }
    names = {k: _fresh("run", taken) for k in kernels} | {m: _fresh("out", taken) for m in made}
    names |= {name: _fresh(names[k] + name[len(k) :], taken) for name, k in owned.items()}
    bodies = [_with_names(part, names | _drawn(table, taken)) for part, table in zip(parts, locals_, strict=True)]
    return "".join(bodies), _with_names(plan, names)


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


__all__ = ["expand", "shorten", "shortened"]
