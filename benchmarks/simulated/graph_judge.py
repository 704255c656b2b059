"""Generated graphs (benchmarks/fuzz) as the engine's programs, on the cpu target and on a simulated one: equal bits?

Programs call exponentials and may be contracted, so bits may differ rightly: an output whose error is within what any
honest program may make "rounds otherwise".
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed

from benchmarks.fuzz.graphs import FuzzCase, cases
from benchmarks.fuzz.judge import FLOOR, opened, write_as
from hipwright.capture.forward import capture
from hipwright.capture.graph import Graph
from hipwright.device.cpu.launcher import CpuLauncher
from hipwright.device.sim.launcher import SimLauncher
from hipwright.errors import CandidateError, DeviceError, GuardFailed, TaskError
from hipwright.program import parse
from hipwright.program.lower.closures import lower
from hipwright.targets import TARGETS
from hipwright.task.host.state import build as state_table
from hipwright.toolchain.amd import offline
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.sim import build as simulated
from hipwright.toolchain.sim import runtime


@dataclass(frozen=True)
class GraphVerdict:
    """status: as `KernelVerdict.status`, or "rounds otherwise", or "refused" for what capture does not take."""

    name: str
    status: str
    message: str
    text: str


def graphs(family: str, seed: int, count: int) -> list[FuzzCase]:
    """The graphs of a seed."""
    found: list[FuzzCase] = []
    checks = list(HealthCheck)
    quiet = settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=checks, phases=(Phase.generate,)
    )
    with_seed(seed)(quiet(given(cases(family))(lambda case: found.append(case))))()
    return list(dict.fromkeys(found))


def judged(
    family: str, seed: int, count: int, target: str, cache: BuildCache, builds: BuildCache
) -> Iterator[GraphVerdict]:
    """A verdict for each graph of a seed. cache: of the executor; builds: of the programs' builds."""
    for k, case in enumerate(graphs(family, seed, count)):
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            status, message = _judged(case, target, cache, builds)
        yield GraphVerdict(f"{family}_{seed}_{k}", status, " ".join(message.split())[:300], case.text)


def _judged(case: FuzzCase, target: str, cache: BuildCache, builds: BuildCache) -> tuple[str, str]:
    wave = TARGETS[target].architecture.wave
    try:
        model, inputs = opened(case.text)
        graph = Graph.from_json(Graph.from_dict(capture(model, inputs)).to_json())
        program = write_as(case.choices, graph)
        parsed = parse(program.text)
    except (TaskError, CandidateError, RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as problem:
        return "refused", str(problem)
    defines = parsed.defines(program.knobs)
    host = cpu.build(parsed.hip, defines, wave=wave, side="amd", cache=builds, unsafe=True)
    gpu = offline.build(parsed.hip, TARGETS[target].architecture.name, defines, cache=builds, unsafe=True)
    if not (host.ok and gpu.ok):
        return "not built", host.log or gpu.log
    gpu = simulated.from_assembly(builds.get(gpu.isa_blob).decode(), target, gpu, builds)
    library = str(runtime.library(cache, unsafe=True))
    launchers = (
        CpuLauncher(str(builds.path(host.blob)), parsed.signatures, wave=wave),
        SimLauncher(library, str(builds.path(gpu.blob)), parsed.signatures),
    )
    found = []
    for side, launcher in zip(("cpu ", ""), launchers, strict=True):
        plan = lower(parsed, program.knobs, state_table(copy.deepcopy(model)), launcher)
        try:
            found.append(_leaves(plan.forward(*inputs)))
        except GuardFailed as problem:
            return "refused", str(problem)
        except DeviceError as problem:
            return "unsupported", problem.message
        except CandidateError as problem:
            return f"{side}{problem.status}", problem.message
        except (RuntimeError, IndexError) as problem:  # a library call that torch refuses
            return "refused", str(problem)
    return _difference(*found)


def _leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, (list, tuple)) else []


def _difference(expected: list[torch.Tensor], found: list[torch.Tensor]) -> tuple[str, str]:
    worst = ("equal", "")
    for k, (one, other) in enumerate(zip(expected, found, strict=True)):
        same = (one == other) | ((one != one) & (other != other))
        if bool(same.all()):
            continue
        wide, exact = other.double(), one.double()
        good = wide.isfinite() & exact.isfinite()
        error = float((wide - exact)[good].abs().max() / exact[good].square().mean().sqrt().clamp_min(1e-30))
        message = (
            f"output {k}: {int((~same).sum())} of {same.numel()} differ, error {error:.3g} of the root mean square"
        )
        if not one.is_floating_point() or not bool((good | same).all()) or error > FLOOR[one.dtype]:
            return "differs", message
        worst = ("rounds otherwise", message)
    return worst
