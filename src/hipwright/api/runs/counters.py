"""Counters of a run: where its profiles come from, and how one program of an open task is profiled (docs/search.md)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from hipwright.archive import Archive, Counted, read_log
from hipwright.archive.log import STATIC
from hipwright.errors import BadInput, ToolchainError
from hipwright.machine import Workbench
from hipwright.records import Program
from hipwright.search.counters import SETTING, CountersLike
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.measure.profiling.profiler import ProfileReport

Mode = Literal["on", "off", "auto"]
MODES: tuple[str, ...] = get_args(Mode)
AUTO: frozenset[str] = frozenset()
"""The sources that `auto` turns on: those whose gain is measured (docs/ablation.md)."""
SIMULATED = "simulated"
INPUT_SEED = 0
LIMIT_S = 120.0
"""Seconds that the profile of one program may take."""


def counters_setting(mode: str | None, targets: tuple[str, ...]) -> dict[str, Any]:
    """The run setting of a mode: {} or {"counters": source}.

    The source is that of the first target that has one: the vendor's profiler of a GPU, the simulator of a simulated or
    an offline AMD target; else "static". "on" raises ToolchainError where a GPU has no profiler. BadInput for another
    mode.
    """
    if mode not in (None, *MODES):
        raise BadInput(f"--counters is {', '.join(MODES)}, not {mode!r}")
    if mode == "off":
        return {}
    source = _source(targets, asked=mode == "on")
    return {SETTING: source} if mode == "on" or source in AUTO else {}


def check_far_counters(settings: Mapping[str, Any]) -> None:
    """Raises BadInput for settings whose profiles need this machine's GPU, where a fleet's judge."""
    source = settings.get(SETTING)
    if source not in (None, STATIC, SIMULATED):
        raise BadInput(f"profiles by {source} are made on this machine's GPU, not on a fleet's", hint="--counters off")


def _source(targets: tuple[str, ...], *, asked: bool) -> str:
    from hipwright.measure.profiling.vendors import PROFILERS, find_tool

    for name in targets:
        if TARGETS.is_gpu(name):
            try:
                find_tool(name)
            except ToolchainError as error:
                if asked:
                    hint = f"{error.hint}; or --counters off"
                    raise ToolchainError(f"--counters on: {error.message}", hint=hint) from None
                return STATIC
            return PROFILERS[TARGETS.gpu(name)].program
    return SIMULATED if simulated_target(targets) else STATIC


def simulated_target(targets: tuple[str, ...]) -> str:
    """The first simulated target of a run, or the one that executes an offline target's code; "" for none."""
    known = {one.name for one in TARGETS.simulated}
    candidates = (name if name in known else f"{name}@sim" for name in targets)
    return next((name for name in candidates if name in known), "")


def run_counters(
    settings: Mapping[str, Any],
    bench: Workbench,
    targets: tuple[str, ...],
    recorded: Mapping[str, Counted] | None = None,
) -> CountersLike | None:
    """What reads the counters of a run with these settings; None for one without. recorded: of a repeated run."""
    source = settings.get(SETTING)
    if source is None:
        return None
    from hipwright.agents.counters import RunCounters

    profiled = None if source == STATIC else partial(_profiled, bench, targets)
    return RunCounters(source, profiled, recorded or {})


def recorded_counters(archive: Archive, run: str) -> dict[str, Counted]:
    """The profiles of a run, by program key."""
    log = read_log(archive.events(run))
    return {one.program: one for one in log.counted.values() if one.profiled}


def _profiled(bench: Workbench, targets: tuple[str, ...], program: Program) -> ProfileReport:
    """One call of a verified program on its task's first workload, profiled. Raises what profiling raises."""
    from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileJob
    from hipwright.program import parse
    from hipwright.program.knobs import text_with_knobs

    parsed, evaluator = parse(text_with_knobs(program)), bench.evaluator
    gpu = next((evaluator.gpus[name].gpu for name in targets if name in evaluator.gpus), None)
    if gpu is not None:
        from hipwright.measure.profiling.profiler import profile_program
        from hipwright.toolchain.gpu_compilers import GPU_COMPILERS

        kind, arch, unsafe = gpu.target.name, gpu.architecture, evaluator.unsafe
        compiler = GPU_COMPILERS[gpu.target]
        build = compiler.build(
            parsed.hip, parsed.defines(), arch=arch, pool=gpu.pool, cache=gpu.cache, unsafe=evaluator.unsafe
        )
        run: Any = partial(profile_program, index=gpu.index, unsafe=unsafe, limit_s=LIMIT_S)
        cache = gpu.cache
    else:
        from hipwright.measure.profiling.simulated import profile_simulated
        from hipwright.toolchain.sim import build as sim

        kind = arch = simulated_target(targets)
        cache, unsafe = evaluator.cache, evaluator.unsafe
        build = sim.build(parsed.hip, kind, parsed.defines(), cache=cache, unsafe=unsafe)
        run = partial(profile_simulated, cache=cache, unsafe=unsafe, limit_s=LIMIT_S)
    name = bench.handle.task.workloads[0].name
    inputs, state = bench.handle.inputs(name, INPUT_SEED), bench.handle.init_state(INPUT_SEED)
    job = ProfileJob(target=kind, text=parsed.text)
    subject = ProfiledProgram(job, arch, build, cache.get(build.blob), inputs, state)
    with gpu.timing_lock.exclusive() if gpu is not None else nullcontext():
        report: ProfileReport = run(subject)
    return report
