"""One generated graph: captured, written by the engine, built with checks, run, and compared with torch in float64.

The quick judgement runs in this process, as the programs are the engine's own; it is a net with small meshes, and what
it catches is judged again by the evaluation that `hipwright optimize` uses before it counts as a fault.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.fuzz.graphs import FuzzCase
from hipwright.api.runs.faults import shown_by
from hipwright.archive.faults import ENGINE_ERROR
from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.engine import author
from hipwright.engine.authoring import Authored
from hipwright.engine.knobs import GIVEN_UP
from hipwright.errors import CandidateError, GuardFailed, TaskError
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.records import Program
from hipwright.task.host.state import build as state_table
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu_build
from hipwright.toolchain.cpu.sides import Side

FLOOR = {torch.float64: 1e-12, torch.float32: 8e-6, torch.float16: 8e-3, torch.bfloat16: 6e-2}
"""Errors, relative to an output's root mean square, that any honest program may make."""
RESIZED = (1, 2, 5, 31, 33, 64, 129, 257)
"""Sizes that free dimensions get in turn, with the program that was written for the given ones."""
MOST = 1 << 12
RESIZES = 3
AMD_WAVE = 64


@dataclass(frozen=True)
class FuzzVerdict:
    """status: "pass", "refused" for what torch or capture does not take, else a fault's; shapes: that were compared."""

    status: str
    message: str = ""
    shapes: int = 0

    @property
    def faulty(self) -> bool:
        """Whether the engine or its program is at fault."""
        return self.status not in ("pass", "refused")


class Unequal(Exception):
    """Outputs that differ from the reference's."""


def choices_of(authored: Authored, number: int) -> dict[str, Any]:
    """The choices of a draw: none for 0, else about half of what the engine offers, drawn anew."""
    if not number:
        return {}
    rng = random.Random(number)
    offered = {key: choice for key, choice in sorted(authored.space.items()) if key != GIVEN_UP}
    return {key: rng.choice(list(choice.options)) for key, choice in offered.items() if rng.random() < 0.5}


def write_as(number: int, graph: Graph) -> Program:
    """The engine's program by a draw of its choices."""
    made = author(graph, {})
    return author(graph, choices_of(made, number)).program if number else made.program


def judged(case: FuzzCase, cache: BuildCache) -> FuzzVerdict:
    """The quick judgement."""
    model, inputs = opened(case.text)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            _references(model, inputs)
            graph = Graph.from_json(Graph.from_dict(capture(model, inputs)).to_json())
        except (TaskError, RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as problem:
            return FuzzVerdict("refused", f"{type(problem).__name__}: {problem}"[:300])
        try:
            program = write_as(case.choices, graph)
            parsed = parse(program.text)
        except CandidateError as problem:
            return FuzzVerdict(problem.status, problem.message[:300])
        except Exception as problem:  # a fault of the engine's own
            return FuzzVerdict(ENGINE_ERROR, f"{type(problem).__name__}: {problem}"[:300])
        defines = parsed.defines(program.knobs)
        side: Side = "amd" if case.wave == AMD_WAVE else ""  # the source may ask for whom it is compiled
        build = cpu_build.build(parsed.hip, defines, wave=case.wave, checked=True, side=side, cache=cache, unsafe=True)
        if not build.ok:
            return FuzzVerdict("compile_error", build.log[:600])
        library = str(cache.path(build.blob))
        return _run(case, graph, parsed, program, library, model, inputs)


def _run(
    case: FuzzCase,
    graph: Graph,
    parsed: Any,
    program: Program,
    library: str,
    model: torch.nn.Module,
    inputs: list[torch.Tensor],
) -> FuzzVerdict:
    """The program at the given shapes and at others that it admits."""
    shapes = 0
    for given in (inputs, *_resized(graph, inputs, case)):
        try:
            expected, native, buffers = _references(model, given)
        except Exception as problem:  # shapes that the module does not take
            if given is inputs:
                return FuzzVerdict("refused", str(problem)[:300])
            continue
        launcher = CpuLauncher(library, parsed.signatures, wave=case.wave)
        plan = lower(parsed, program.knobs, state_table(copy.deepcopy(model)), launcher)
        try:
            outputs = plan.forward(*given)
            _compare(outputs, expected, native)
            for name, buffer in buffers.items():
                if name in plan.tensors:
                    _compare(plan.tensors[name], *buffer)
        except GuardFailed:
            continue
        except CandidateError as problem:
            if problem.status == "timeout" and given is not inputs:  # many small rows, each with a block of fibers
                continue
            return FuzzVerdict(problem.status, f"{_shapes(given)}: {problem.message}"[:600], shapes)
        except Unequal as problem:
            return FuzzVerdict("wrong_value", f"{_shapes(given)}: {problem}", shapes)
        except Exception as problem:  # the plan's own: a library call that torch refuses
            return FuzzVerdict("launch_error", f"{_shapes(given)}: {type(problem).__name__}: {problem}"[:600], shapes)
        shapes += 1
    return FuzzVerdict("pass", shapes=shapes)


def confirmed(case: FuzzCase, limit_s: float = 120.0) -> str:
    """The status by the evaluation of `hipwright optimize`, in its sandboxes, at all its inputs and shapes."""
    return shown_by(case.text, "cpu", lambda graph: write_as(case.choices, graph), limit_s=limit_s)


# ---------------------------------------------------------------- references


def opened(text: str) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """The module and its inputs of a task file."""
    scope: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(compile(text, "task.py", "exec"), scope)
    return scope["Model"](), scope["get_inputs"]()


def _references(model: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[Any, Any, Mapping[str, tuple[Any, Any]]]:
    """(float64 outputs, native outputs, {buffer: (float64, native)})."""
    exact, native = copy.deepcopy(model).double(), copy.deepcopy(model)
    wide = [i.double() if i.is_floating_point() else i for i in inputs]
    found, plain = exact(*wide), native(*inputs)
    twins = dict(native.named_buffers())
    return found, plain, {name: (buffer, twins[name]) for name, buffer in exact.named_buffers()}


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, (list, tuple)) else []


def _compare(got: Any, expected: Any, native: Any) -> None:
    """Raises Unequal where a program's outputs are further from float64 than three times torch's own."""
    for k, (g, e, n) in enumerate(zip(_leaves(got), _leaves(expected), _leaves(native), strict=True)):
        if (g.dtype, g.shape) != (n.dtype, n.shape):
            raise Unequal(f"output {k} is {g.dtype}{tuple(g.shape)}, not {n.dtype}{tuple(n.shape)}")
        if not g.is_floating_point():
            if not torch.equal(g, n):
                raise Unequal(f"output {k}: {int((g != n).sum())} of {g.numel()} integers differ")
            continue
        wide, exact = g.double(), e.double()
        if not ((wide.isfinite() == exact.isfinite()) | (wide.isfinite() == n.isfinite())).all():
            raise Unequal(f"output {k} is finite elsewhere")
        good = exact.isfinite() & wide.isfinite() & n.isfinite()
        if not good.any():
            continue
        scale = exact[good].square().mean().sqrt().clamp_min(1e-30)
        error = float((wide - exact)[good].abs().max() / scale)
        honest = float((n.double() - exact)[good].abs().max() / scale)
        if error > max(3 * honest, FLOOR[g.dtype]):
            raise Unequal(f"output {k}: error {error:.3g}, torch's own {honest:.3g}")


# ---------------------------------------------------------------- other shapes


def _resized(graph: Graph, inputs: list[torch.Tensor], case: FuzzCase) -> Iterator[list[torch.Tensor]]:
    """Inputs of other sizes in the dimensions that the graph leaves free."""
    if not graph.symbols or any(not i.is_floating_point() for i in inputs):
        return
    rng = random.Random(case.text)
    for _ in range(RESIZES):
        sizes = {symbol.name: rng.choice((*RESIZED, symbol.hint)) for symbol in graph.symbols}
        found = []
        for tensor, given in zip((i for i in graph.inputs if i.kind == "input"), inputs, strict=True):
            shape = [_size(size, sizes) for size in tensor.meta.shape]
            if not 0 < torch.Size(shape).numel() <= MOST:
                break
            values = given.flatten()[torch.arange(torch.Size(shape).numel()) % given.numel()]
            found.append(values.reshape(shape))
        else:
            yield found


def _size(size: int | str, sizes: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else int(eval(size, {"__builtins__": {}}, {"min": min, "max": max, **sizes}))


def _shapes(inputs: list[torch.Tensor]) -> str:
    return ", ".join("x".join(map(str, i.shape)) or "scalar" for i in inputs)


def cache_in(folder: Path) -> BuildCache:
    """A cache of builds that ends with a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return BuildCache(folder)
