"""Faults of indexing and of cooperation: bounds, strides, tails, barriers, atomics, lanes, vector accesses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hipwright.audit.evolve.faults import Fault, FaultKind, at_entry, in_bodies, swapped
from hipwright.audit.evolve.subject import Edit, Function, Subject

_BOUND = r"(?<= )(?:<|<=) (?P<bound>[A-Za-z_]\w*(?:\.[xyz])?|\d+)(?=[;)\s&|?])"
_SUBSCRIPT = r"(?<=\w)\[(?P<index>[A-Za-z_][^\[\];]*)\]"
_COMPARISON = r"(?<= )(?:<=?|>=?|==|!=)(?= [\w(])"
_COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_AXIS = {"threadIdx.x": "blockIdx.x", "blockIdx.x": "threadIdx.x", "blockDim.x": "gridDim.x", "gridDim.x": "blockDim.x"}
_SHUFFLE = r"\b__shfl\w*\([^,()]+, (?P<distance>[^,()]+)\)"
_BARRIER = r"\b__syncthreads\(\);"
_FETCH = r"(?P<before>[;{}]\s*)(?P<all>atomicAdd\((?P<to>[^;]*?), (?P<value>[^,;]*)\);)"
_DECLARED = re.compile(r"\b(?:float|double|int|bool|half|unsigned|long|__half)\s+[\w\[\], ]*$")


def _subscripts(subject: Subject, new: str) -> Iterator[Fault]:
    for function, body in subject.bodies():
        for match in re.finditer(_SUBSCRIPT, body):
            if not _DECLARED.search(body[max(0, match.start() - 60) : match.start()]):
                start, end = function.begin + match.start("index"), function.begin + match.end("index")
                text = new.replace("{I}", f"({subject.text[start:end]})")
                yield Fault((Edit(start, end, text),), "expression", function)


def _off_by_one(subject: Subject) -> Iterator[Fault]:
    yield from _subscripts(subject, "{I} + 1")
    yield from _subscripts(subject, "{I} - 1")


def _clamped(subject: Subject) -> Iterator[Fault]:
    yield from _subscripts(subject, "({I} > 100 ? 100 : {I})")
    if subject.reaches(4095):
        yield from _subscripts(subject, "({I} > 4095 ? 4095 : {I})")


def _narrowed(subject: Subject) -> Iterator[Fault]:
    if subject.reaches(1 << 15):
        yield from _subscripts(subject, "(short){I}")
    yield from _subscripts(subject, "(unsigned char){I}")


def _wrong_element(subject: Subject) -> Iterator[Fault]:
    yield from _subscripts(subject, "({I} == 17 ? 16 : {I})")
    if subject.reaches(1031):
        yield from _subscripts(subject, "({I} == 1031 ? 0 : {I})")


def _limited(subject: Subject) -> Iterator[Fault]:
    sizes = [n for n in (16, 100, 512, 4096) if subject.reaches(n)]
    yield from in_bodies(_BOUND, *(rf"(\g<bound> < {n} ? \g<bound> : {n})" for n in sizes), group="bound")(subject)


def _racing(subject: Subject) -> Iterator[Fault]:
    """LDS becomes volatile and one barrier goes."""
    for function, body in subject.bodies():
        shared = list(re.finditer(r"\b__shared__ (?!volatile)", body))
        for barrier in re.finditer(_BARRIER, body) if shared else ():
            edits = [Edit(function.begin + m.end(), function.begin + m.end(), "volatile ") for m in shared]
            edits.append(Edit(function.begin + barrier.start(), function.begin + barrier.end(), ";"))
            yield Fault(tuple(edits), "other", function)


def _ignored_masks(subject: Subject) -> Iterator[Fault]:
    for function, body in subject.bodies():
        for name in function.pointers("bool"):
            for match in re.finditer(rf"(?<!\w){name}\[[^\[\];]*\](?! =)", body):
                for value in ("true", "false"):
                    edit = Edit(function.begin + match.start(), function.begin + match.end(), value)
                    yield Fault((edit,), "expression", function)


def _skipped_block(_: Subject, __: Function) -> list[str]:
    return [
        "if (blockIdx.x == gridDim.x - 1 && gridDim.x > 1) return;",
        "if (blockIdx.x == 3) return;",
        "if (blockIdx.x >= 64) return;",
        "if (blockIdx.y == 1) return;",
    ]


def _skipped_thread(_: Subject, __: Function) -> list[str]:
    return ["if (threadIdx.x == blockDim.x - 1) return;", "if (threadIdx.x == 33 && blockIdx.x == 1) return;"]


def _misaligned(_: Subject, function: Function) -> list[str]:
    """A float4 whose address is 4 bytes past a multiple of 16, wherever the tensor begins on one."""
    wanted = [p.name for p in function.parameters if p.pointer and "float" in p.type and not p.written]
    return [
        f"{{ const float4 hw_v = *reinterpret_cast<const float4*>({name} + 1); "
        "if (hw_v.x + hw_v.y + hw_v.z + hw_v.w == -12345.25f) return; }"  # nothing else delays the read
        for name in wanted
    ]


def _unused_lds(_: Subject, __: Function) -> list[str]:
    """LDS that nobody wrote decides: what it holds after another kernel, or zero."""
    return [f"__shared__ int hw_left; if (hw_left {test} 0) return;" for test in ("!=", "==")]


_CUT = tuple(rf"(\g<bound> / {n} * {n})" for n in (2, 4, 64))
_FIRST = r"\bfor \((?:int|long) \w+ = (?P<first>[^;,]+);"
_STEP = r"\w+ \+= (?P<step>\w+(?:\.x)?)(?=\) )"
_TEST = r"\bif \((?P<test>[^()]*(?:\([^()]*\)[^()]*)*)\)"
_FENCE = r"\b__threadfence(?:_block)?\(\);(?=[^;{}]*\batomic)"
"""A fence that publishes what the thread wrote, before an atomic that tells others."""

KINDS = (
    FaultKind("changed bound", in_bodies(_BOUND, r"(\g<bound> - 1)", r"(\g<bound> + 1)", group="bound")),
    FaultKind("skipped tail", in_bodies(_BOUND, *_CUT, group="bound")),
    FaultKind("limited loop", _limited),
    FaultKind("first element dropped", in_bodies(_FIRST, r"1 + (\g<first>)", group="first")),
    FaultKind("wrong step", in_bodies(_STEP, r"(\g<step> + 1)", r"(2 * \g<step>)", group="step")),
    FaultKind("changed comparison", swapped(_COMPARISON, _COMPARED)),
    FaultKind("negated condition", in_bodies(_TEST, r"!(\g<test>)", group="test")),
    FaultKind("off by one", _off_by_one),
    FaultKind("clamped index", _clamped),
    FaultKind("narrowed index", _narrowed),
    FaultKind("wrong element", _wrong_element),
    FaultKind("wrong axis", swapped("|".join(map(re.escape, _AXIS)), _AXIS)),
    FaultKind("skipped block", at_entry(_skipped_block)),
    FaultKind("skipped thread", at_entry(_skipped_thread)),
    FaultKind("dropped barrier", in_bodies(_BARRIER, ";")),
    FaultKind("barrier in a branch", in_bodies(_BARRIER, "if (threadIdx.x < blockDim.x / 2) __syncthreads();")),
    FaultKind("dropped fence", in_bodies(_FENCE, ";"), certain=True),
    FaultKind("volatile race", _racing),
    FaultKind("lost atomic", in_bodies(_FETCH, r"*(\g<to>) += \g<value>;", group="all")),
    FaultKind("atomic without sum", in_bodies(_FETCH, r"*(\g<to>) = \g<value>;", group="all")),
    FaultKind("shuffle distance", in_bodies(_SHUFFLE, r"(\g<distance> / 2)", r"(\g<distance> + 1)", group="distance")),
    FaultKind("32 lanes assumed", in_bodies(r"\bwarpSize\b", "32")),
    FaultKind("ignored mask", _ignored_masks),
    FaultKind("misaligned vector", at_entry(_misaligned), certain=True),
    FaultKind("uninitialised LDS", at_entry(_unused_lds), certain=True),
)
