"""Hazards that need the plan: LDS and threads of launches for every knob value, and newly drawn weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from hipwright.program.hazards.launch import knob_choices, knob_suffix, launches
from hipwright.program.hazards.source import BlankedSource, HazardMatch, SourceFunction, element_bytes
from hipwright.program.language import dotted
from hipwright.targets import Architecture

MAX_THREADS = 1024  # per block, on every target
_SHARED = re.compile(
    r"\b__shared__\s+((?:(?:__align__|alignas|__attribute__)\s*\(+[^()]*\)+\s*|volatile\s+|const\s+"
    r"|static\s+)*)([A-Za-z_][\w ]*?)\s+(\w+\s*(?:\[[^;]*?\])[^;]*?);"
)
_BOUND = re.compile(r"__launch_bounds__\s*\(([^,()]*(?:\([^()]*\)[^,()]*)*)[,)]")


def lds(source: BlankedSource, known: Sequence[Architecture]) -> Iterator[HazardMatch]:
    """Finds launches that need more LDS than a block of a target has, with default or other knob values."""
    arrays = _arrays(source)
    calls = {f.name: _called(source, f) for f in source.functions}
    for launch in launches(source.parsed):
        for chosen in knob_choices(source.parsed):
            values = source.parsed.values(chosen)
            dynamic = launch.dynamic(values) or 0
            static, at = _static(source, arrays, calls, launch.kernel, values)
            over = [t for t in known if static + dynamic > t.lds_per_block]
            if over:
                limit = min(t.lds_per_block for t in over)
                yield HazardMatch(
                    "lds_limit",
                    f"{launch.kernel} needs {static + dynamic} bytes of LDS{knob_suffix(chosen)}; a block has {limit} "
                    f"on {', '.join(t.name for t in over)}",
                    at,
                    not chosen,
                    None if at and not dynamic else launch.line,
                )
                break


def _arrays(source: BlankedSource) -> list[tuple[int, str, str]]:
    """(position, element type, declarators) of every static array in LDS."""
    return [
        (m.start(), m[2], m[3])
        for m in _SHARED.finditer(source.code)
        if not re.search(r"\bextern\s+\Z", source.code[: m.start()][-12:])
    ]


def _called(source: BlankedSource, function: SourceFunction) -> set[str]:
    names = {f.name for f in source.functions}
    return names & set(re.findall(r"\b([A-Za-z_]\w*)\s*[(<]", source.body(function))) | {function.name}


def _static(
    source: BlankedSource,
    arrays: list[tuple[int, str, str]],
    calls: Mapping[str, set[str]],
    kernel: str,
    values: Mapping[str, int | bool],
) -> tuple[int, int]:
    """(bytes of the static arrays of a kernel and the functions it calls, position of the largest)."""
    reached: set[str] = set()
    todo = [kernel]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += calls.get(name, set())
    knobs = {k: int(v) for k, v in values.items() if k in source.parsed.knobs}
    total, worst, where = 0, -1, 0
    for at, ctype, declarators in arrays:
        function = source.around(at)
        if function is not None and function.name in reached:
            size = _bytes(source, ctype, declarators, knobs)
            total += size
            if size > worst:
                worst, where = size, at
    return total, where


def _bytes(source: BlankedSource, ctype: str, declarators: str, knobs: Mapping[str, int]) -> int:
    """Bytes of `a[2][N], b[4]`; an unknown extent counts as 0 bytes."""
    width = element_bytes(ctype) or 0
    total = 0
    for _, extents in re.findall(r"(\w+)\s*((?:\[[^\]]*\]\s*)+)", declarators):
        count = width
        for extent in re.findall(r"\[([^\]]*)\]", extents):
            count *= source.number(extent, knobs) or 0
        total += count
    return total


def launch_bounds(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds launches with more threads than __launch_bounds__ allows, or than a block may have."""
    bounds = {f.name: m[1] for f in source.functions if f.kernel and (m := _BOUND.search(f.head))}
    for launch in launches(source.parsed):
        for chosen in knob_choices(source.parsed):
            values = source.parsed.values(chosen)
            threads = launch.threads(values)
            knobs = source.parsed.defines(chosen)
            bound = source.number(bounds[launch.kernel], knobs) if launch.kernel in bounds else None
            if threads and threads > (bound or MAX_THREADS):
                what = f"__launch_bounds__ allows {bound}" if bound else f"a block has at most {MAX_THREADS}"
                yield HazardMatch(
                    "launch_bounds",
                    f"{launch.kernel} is launched with {threads} threads{knob_suffix(chosen)}; {what}",
                    0,
                    not chosen,
                    launch.line,
                )
                break


_RANDOM = re.compile(
    r"(?:rand|randn|randint|randperm|normal|bernoulli|rand_like|randn_like|randint_like)\Z|.*(?:uniform|normal"
    r"|xavier|kaiming|trunc_normal)_?\Z"
)


def reinitialised(source: BlankedSource) -> Iterator[HazardMatch]:
    """Finds calls that draw random numbers or initialise weights, which are never the reference's."""
    for name, function in source.parsed.functions.items():
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            path = dotted(node.func)
            if path and len(path) > 1 and _RANDOM.match(path[-1]):
                drawn = f"{'.'.join(path)} draws new numbers, which are right only where the reference draws the same"
                message = f"{drawn}; its weights are what its model holds"
                yield HazardMatch("parameter_reinit", message, 0, name == "prepare", node.lineno)
