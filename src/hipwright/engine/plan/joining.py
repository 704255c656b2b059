"""Horizontal joining: independent kernels of a plan that are small become one launch, each a range of its blocks.

A launch costs an H100 2 to 3 us from the end of one kernel to the start of the next, in which it moves some 8 MiB. So
two kernels that move less than that each, and of which neither reads or writes what the other writes, take little more
than one: the first blocks of the grid compute one, the others the next. The idea is known as horizontal fusion (Li,
Zheng, Pekhimenko, Long 2022, "Automatic horizontal fusion for GPU kernels"; theirs shares the threads of a block); the
rule is our own. The choice `join` of the whole program is `small`, `all` (whatever the kernels move) or `no`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hipwright.engine.emit.device_code import headers_for
from hipwright.engine.emit.function import KernelFunction, KernelParameter
from hipwright.engine.emit.tree import Statement
from hipwright.engine.plan.naming import KernelNames
from hipwright.engine.templates.base import EmittedKernel
from hipwright.toolchain import device_headers

JOIN = "join"
"""The choice: which independent kernels become one launch."""
HOW = ("small", "all", "no")
SMALL_BYTES = 1 << 23
"""The most bytes that a kernel moves to be small: what an H100 moves in 2.5 us (3.35 TB/s by its data sheet)."""
MOST = 8
"""The most kernels of one launch: each is compiled into it."""
_OTHER_GRIDS = re.compile(r"\b(?:blockIdx\.[yz]|threadIdx\.[yz]|blockDim|gridDim|ROW_CACHE|__cluster\w*)\b")
"""What a kernel with a grid of its own form, or with all of a block's LDS, has in its text."""
_SIMPLE = re.compile(r"\w+")


@dataclass(eq=False)
class Launch:
    """A launch that is not written yet. arguments: their texts in the plan; reads, writes: memory, by one name for each
    tensor with all its views.
    """

    kernel: EmittedKernel
    arguments: Sequence[str]
    reads: frozenset[str]
    writes: frozenset[str]
    joinable: bool

    def independent(self, other: Launch) -> bool:
        """Whether neither reads what the other writes, nor writes it, unless they write apart."""
        if self.writes & other.reads or other.writes & self.reads:
            return False
        return not self.writes & other.writes or other.kernel.name in self.kernel.apart


@dataclass(eq=False)
class Joining:
    """The joined kernels of one program. how: of HOW. of: {a kernel's name: the joined kernel that it is part of}."""

    how: str
    names: KernelNames
    of: dict[str, EmittedKernel] = field(default_factory=dict)
    possible: bool = False  # whether any of HOW joins kernels

    def functions(self, kernels: Sequence[EmittedKernel]) -> list[KernelFunction]:
        """The functions to print for kernels, a joined one where its first part stands."""
        whole = dict.fromkeys(self.of.get(kernel.name, kernel) for kernel in kernels)
        return [kernel.function for kernel in whole if kernel.function is not None]

    def name(self, kernel: EmittedKernel) -> str:
        """The name under which a kernel is launched."""
        return self.of.get(kernel.name, kernel).name

    def takes(self, launch: Launch) -> bool:
        """Whether the launch may be joined with others, by the choice."""
        return launch.joinable and (self.how == "all" or (self.how == "small" and is_small(launch.kernel.moves)))


def is_small(bytes_moved: int) -> bool:
    """Whether a kernel's memory time lies below the cost of its launch."""
    return 0 < bytes_moved <= SMALL_BYTES


class PendingLaunches:
    """Holds launches back until one cannot be joined with them. write(kernel, arguments): writes a launch; line(text):
    a line of the plan; local(name): a name of the plan that is free.
    """

    def __init__(
        self,
        joining: Joining,
        write: Callable[[EmittedKernel, Sequence[str]], None],
        line: Callable[[str], None],
        local: Callable[[str], str],
    ) -> None:
        self._joining, self._write, self._line, self._local = joining, write, line, local
        self._held: list[Launch] = []
        self._last: Launch | None = None  # the launch before, if no other step stands between

    def add(self, launch: Launch) -> None:
        """A launch, behind all that were added."""
        if self._last is not None and launch.joinable and self._last.joinable:
            fits = launch.independent(self._last) and _same_blocks([self._last, launch])
            self._joining.possible |= fits
        self._last = launch
        if not self._joining.takes(launch):
            self._write_held()
            self._write(launch.kernel, launch.arguments)
            return
        apart = all(launch.independent(other) for other in self._held)
        if not apart or len(self._held) == MOST or not _same_blocks([*self._held, launch]):
            self._write_held()
        self._held.append(launch)

    def flush(self) -> None:
        """Writes what is held: another step follows."""
        self._last = None
        self._write_held()

    def _write_held(self) -> None:
        held, self._held = self._held, []
        if len(held) > 1:
            self._join(held)
        elif held:
            self._write(held[0].kernel, held[0].arguments)

    def _join(self, held: Sequence[Launch]) -> None:
        name = self._joining.names.free(self._local(f"{held[0].kernel.name}_joined"))
        starts: list[str] = []
        for launch in held[:-1]:
            start = self._local(f"blocks_{len(starts) + 1}")
            self._line(f"{start} = {starts[-1] + ' + ' if starts else ''}{launch.kernel.grid}")
            starts.append(start)
        kernel, arguments = joined(name, held, starts)
        self._joining.of |= {launch.kernel.name: kernel for launch in held}
        self._write(kernel, arguments)


# ------------------------------------------------------------ which kernels


def joinable(kernel: EmittedKernel) -> bool:
    """Whether the kernel may share a launch: each of its blocks computes alone, from its number, with fixed LDS."""
    if kernel.function is None or kernel.single or kernel.lds or kernel.before or kernel.scratch or kernel.zeroed:
        return False
    if _has_dimensions(kernel.grid) or _has_dimensions(kernel.block):
        return False
    text = _text(kernel)
    return not _OTHER_GRIDS.search(text) and not any("blockIdx" in device for device in kernel.device.values())


def _has_dimensions(geometry: str) -> bool:
    """Whether the plan's text of a grid or block is a tuple."""
    depth = 0
    outermost = 1 if geometry.startswith("(") else 0
    for place, char in enumerate(geometry):
        depth += (char == "(") - (char == ")")
        if depth == 0 and place < len(geometry) - 1 and char == ")":
            outermost = 0  # the first parenthesis is not around everything
        if char == "," and depth == outermost:
            return True
    return False


def _same_blocks(launches: Sequence[Launch]) -> bool:
    """Whether one block size serves all: the same for each, or the largest where threads need not wait for others; LDS
    of its own has one of them at most.
    """
    kernels = [launch.kernel for launch in launches]
    if sum("__shared__" in _text(kernel) for kernel in kernels) > 1:
        return False
    blocks = {kernel.block for kernel in kernels}
    return len(blocks) == 1 or (all(map(_SIMPLE.fullmatch, blocks)) and not any(_waits(kernel) for kernel in kernels))


def _waits(kernel: EmittedKernel) -> bool:
    """Whether the threads of a block may wait for each other."""
    headers = device_headers.with_dependencies(sorted(headers_for(kernel.used)))
    texts = [_text(kernel), *kernel.device.values(), *map(device_headers.text, headers)]
    return any("__syncthreads" in text for text in texts)


def _text(kernel: EmittedKernel) -> str:
    return "\n".join(kernel.function.lines()) if kernel.function is not None else ""


# ------------------------------------------------------------ the joined kernel


def joined(name: str, launches: Sequence[Launch], starts: Sequence[str]) -> tuple[EmittedKernel, list[str]]:
    """(the kernel, its arguments' texts) of several launches. starts: the plan's names of the first block of each but
    the first.
    """
    kernels = [launch.kernel for launch in launches]
    functions = [kernel.function for kernel in kernels if kernel.function is not None]
    shared = _Parameters(starts)
    calls = [shared.add_all(function, launch) for function, launch in zip(functions, launches, strict=True)]
    blocks = list(dict.fromkeys(kernel.block for kernel in kernels))
    own = len(blocks) > 1  # whether a part may have fewer threads than the block
    title = "; ".join(function.comment for function in functions)
    bounds = _bounds([function.bounds for function in functions])
    whole = KernelFunction(name, title, bounds, shared.parameters, [], parts=functions)
    for number, (kernel, given) in enumerate(zip(kernels, calls, strict=True)):
        whole.body += _part(whole.part_name(number), number, starts, kernel.block if own else "", given)
    block = f"max({', '.join(blocks)})" if own else blocks[0]
    out = EmittedKernel(name, whole, f"{starts[-1]} + {kernels[-1].grid}", block, shared.arguments)
    if any(kernel.static_bounds for kernel in kernels):
        each = zip(kernels, functions, strict=True)
        out.static_bounds = _bounds([kernel.static_bounds or function.bounds for kernel, function in each])
    return out, shared.texts


def _part(function: str, number: int, starts: Sequence[str], block: str, given: Sequence[str]) -> list[Statement]:
    """The lines that call a part in its range of blocks. block: how many threads of the block it has, "" for all."""
    first = f"(unsigned){starts[number - 1]}" if number else ""
    lines = [f"if (blockIdx.x < (unsigned){starts[number]}) {{" if number < len(starts) else "{"]
    if number and number <= len(starts):
        lines[0] = f"}} else {lines[0]}"
    if block:
        lines.append(f"    if (threadIdx.x >= (unsigned){block}) return;")
    lines.append(f"    {function}({', '.join([f'blockIdx.x - {first}' if number else 'blockIdx.x', *given])});")
    return [Statement(line) for line in (lines if number < len(starts) else [*lines, "}"])]


class _Parameters:
    """The parameters of a joined kernel: what several parts are given is one."""

    def __init__(self, starts: Sequence[str]) -> None:
        self.parameters = [KernelParameter("int", start) for start in starts]
        self.arguments, self.texts = list(starts), list(starts)
        self._names: dict[tuple[str, str], str] = {}

    def add_all(self, function: KernelFunction, launch: Launch) -> list[str]:
        """The names of the parameters that a part is called with."""
        each = zip(function.parameters, launch.kernel.arguments, launch.arguments, strict=True)
        return [self._add(parameter, argument, text) for parameter, argument, text in each]

    def _add(self, parameter: KernelParameter, argument: str, text: str) -> str:
        key = parameter.type, text
        if key not in self._names:
            taken = {p.name for p in self.parameters}
            name, count = parameter.name, 1
            while name in taken:
                count += 1
                name = f"{parameter.name}_{count}"
            self._names[key] = name
            self.parameters.append(KernelParameter(parameter.type, name))
            self.arguments.append(argument)
            self.texts.append(text)
        return self._names[key]


def _bounds(each: Sequence[str]) -> str:
    """Launch bounds for all: the most threads, and the number of blocks that all give."""
    apart = [_split(text) for text in dict.fromkeys(each)]
    threads = list(dict.fromkeys(first for first, _ in apart))
    most = threads[0]
    for other in threads[1:]:
        most = f"(({most}) > ({other}) ? ({most}) : ({other}))"
    rest = {second for _, second in apart}
    return most + (f",{rest.pop()}" if len(rest) == 1 and "" not in rest else "")


def _split(bounds: str) -> tuple[str, str]:
    """(threads, what follows the comma) of launch bounds."""
    depth = 0
    for place, char in enumerate(bounds):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            return bounds[:place], bounds[place + 1 :]
    return bounds, ""
