"""Faults of the plan: grids, guards, layouts, workspace, outputs, arguments, and what a launch leaves behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hipwright.audit.evolve.faults import Fault, FaultKind
from hipwright.audit.evolve.subject import Edit, Function, Subject, split_arguments

_CONTIGUOUS = re.compile(r"\.contiguous\(\)")
_ZEROS = re.compile(r"\btorch\.zeros(?:_like)?\b")
_EMPTY_LIKE = re.compile(r"\btorch\.empty_like\((?P<of>\w+)\)")
_STATE = re.compile(r"(?<![\w.])self\.[a-z_][\w.]*\b(?!\()")
_SIGNATURE = re.compile(r"(?m)^def forward\(self, (?P<inputs>[^)]*)\):$")
TOKENS = 1 << 16


def _replaced(pattern: re.Pattern[str], *new: str) -> Callable[[Subject], Iterator[Fault]]:
    def faults(subject: Subject) -> Iterator[Fault]:
        for match in pattern.finditer(subject.plan):
            for text in new:
                yield Fault((Edit(match.start(), match.end(), match.expand(text)),))

    return faults


def _grids(subject: Subject) -> Iterator[Fault]:
    for launch in subject.launches:
        grid, span = launch["grid"], launch.span("grid")
        if not grid.startswith("("):
            yield Fault((Edit(*span, f"max(1, {grid} - 1)"),))
            yield Fault((Edit(*span, f"max(1, ({grid}) // 2)"),))
            yield Fault((Edit(*span, f"min({grid}, 24)"),))
        for match in re.finditer(r"\bcdiv\((?P<n>[^()]+(?:\([^()]*\)[^()]*)*), (?P<by>[^(),]+)\)", grid):
            start = span[0]
            yield Fault((Edit(start + match.start(), start + match.end(), f"(({match['n']}) // ({match['by']}))"),))


def _blocks(subject: Subject) -> Iterator[Fault]:
    for launch in subject.launches:
        if "(" not in launch["block"]:
            for new in (f"({launch['block']}) // 2", f"2 * ({launch['block']})"):
                yield Fault((Edit(*launch.span("block"), new),))


def _arguments(subject: Subject) -> Iterator[Fault]:
    """Two arguments of one type change places, or an integer is one off."""
    for launch in subject.launches:
        signature = subject.parsed.signatures.get(launch["kernel"])
        given = split_arguments(launch["args"])
        function = next((f for f in subject.functions if f.name == launch["kernel"]), None)
        if signature is None or function is None or len(function.parameters) != len(given):
            continue
        types = [re.sub(r"\b(?:const|__restrict__|\s)+", "", p.type) for p in function.parameters]
        for a in range(len(given)):
            for b in range(a + 1, len(given)):
                if types[a] == types[b] and given[a].strip() != given[b].strip():
                    swapped = [*given]
                    swapped[a], swapped[b] = given[b], given[a]
                    yield Fault((Edit(*launch.span("args"), ",".join(swapped)),))
            if types[a] in ("int", "long"):
                for off in ("+ 1", "- 1"):
                    changed = [*given[:a], f" ({given[a].strip()}) {off}", *given[a + 1 :]]
                    yield Fault((Edit(*launch.span("args"), ",".join(changed)),))


def _dead_launches(subject: Subject) -> Iterator[Fault]:
    for launch in subject.launches:
        yield Fault((Edit(launch.start(), launch.end(), f"{launch['indent']}hw_unused = 0"),))


def _ignored_state(subject: Subject) -> Iterator[Fault]:
    """A parameter or buffer is replaced by a constant of its shape."""
    for launch in subject.launches:
        for match in _STATE.finditer(launch["args"]):
            start = launch.start("args")
            for made in ("torch.ones_like", "torch.zeros_like"):
                yield Fault((Edit(start + match.start(), start + match.end(), f"{made}({match.group()})"),))


def _guards(new: str | None) -> Callable[[Subject], Iterator[Fault]]:
    def faults(subject: Subject) -> Iterator[Fault]:
        for guard in subject.guards:
            if new is None and "**" not in guard["test"]:
                yield Fault((Edit(*guard.span("test"), "True"),))
            elif new is not None:
                yield Fault((Edit(*guard.span("test"), new.format(guard["test"])),))

    return faults


def _returned(*new: str) -> Callable[[Subject], Iterator[Fault]]:
    def faults(subject: Subject) -> Iterator[Fault]:
        for match in subject.returns:
            for text in new:
                yield Fault((Edit(*match.span("value"), text.format(y=match["value"])),))

    return faults


def _workspace_token(subject: Subject) -> Iterator[Fault]:
    """Every thread leaves a mark in workspace, and a thread that finds its mark does nothing."""
    index = "(blockIdx.x + blockIdx.y * gridDim.x) * blockDim.x + threadIdx.x"
    for launch in subject.launches:
        function = next((f for f in subject.functions if f.name == launch["kernel"]), None)
        if function is None:
            continue
        body = (
            f"\n    int* hw_mine = hw_token + (({index}) & {TOKENS - 1});\n"
            "    if (*hw_mine == 0x5eed1234) return;\n    *hw_mine = 0x5eed1234;"
        )
        made = f"{launch['indent']}hw_token = torch.empty(({TOKENS},), dtype=torch.int32)\n"
        yield Fault(
            (
                Edit(function.closing, function.closing, ", int* hw_token"),
                Edit(function.begin + 1, function.begin + 1, body),
                Edit(launch.start(), launch.start(), made),
                Edit(launch.end("args"), launch.end("args"), ", hw_token"),
            ),
            "other",
            function,
        )


def _written_inputs(subject: Subject) -> Iterator[Fault]:
    """Thread 0 writes to an input: for good, or for the time of the launch."""
    for function in subject.functions:
        for name in function.pointers("float") if function.entry else ():
            if _is_input(subject, function, name):
                first = "blockIdx.x + blockIdx.y + threadIdx.x == 0"
                yield _inserted(function, f"if ({first}) const_cast<float*>({name})[0] += 1.0f;")
                yield _inserted(
                    function,
                    f"if ({first}) {{ volatile float* hw_p = const_cast<float*>({name}); float hw_v = hw_p[0]; "
                    "hw_p[0] = 0.0f; hw_p[0] = hw_v; }",
                )


def _is_input(subject: Subject, function: Function, name: str) -> bool:
    """Whether a kernel's pointer is an input or a part of the state in every launch; the plan's own may be written."""
    place = next(n for n, p in enumerate(function.parameters) if p.name == name)
    if function.parameters[place].written or not (signature := _SIGNATURE.search(subject.plan)):
        return False
    inputs = {one.strip() for one in split_arguments(signature["inputs"])}
    launches = [launch for launch in subject.launches if launch["kernel"] == function.name]
    passed = [split_arguments(launch["args"])[place].strip() for launch in launches]
    return bool(passed) and all(one in inputs or one.startswith("self.") for one in passed)


def _inserted(function: Function, statement: str) -> Fault:
    return Fault((Edit(function.begin + 1, function.begin + 1, f"\n    {statement}"),), "other", function)


KINDS = (
    FaultKind("wrong grid", _grids),
    FaultKind("wrong block", _blocks),
    FaultKind("wrong arguments", _arguments),
    FaultKind("dead kernel", _dead_launches),
    FaultKind("ignored parameter", _ignored_state),
    FaultKind("ignored strides", _replaced(_CONTIGUOUS, "")),
    FaultKind("uninitialised workspace", _replaced(_ZEROS, "torch.empty")),
    FaultKind("output in the input", _replaced(_EMPTY_LIKE, r"\g<of>")),
    FaultKind("removed guard", _guards(None)),
    FaultKind("inverted guard", _guards("not ({})")),
    FaultKind("wrong dtype", _returned("{y}.double()", "{y}.half()")),
    FaultKind("narrowed by the library", _returned("{y}.half().to({y}.dtype)", "{y}.bfloat16().to({y}.dtype)")),
    FaultKind("expanded output", _returned("{y}[:1].expand({y}.shape)", "{y}[:1].repeat({y}.shape[0], 1)")),
    FaultKind("reversed output", _returned("{y}.flip(0)")),
    FaultKind("workspace token", _workspace_token, certain=True),
    FaultKind("written input", _written_inputs, certain=True),
)
