"""Hardware counters of a program's kernels on a GPU, from one call after a warm-up (docs/profile.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.inputs import TaskSource, task_source
from hipwright.sandbox import Zygote
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.events import Listener
    from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileReport
    from hipwright.program import Parsed
    from hipwright.records import Build, Program
    from hipwright.toolchain.cache import BuildCache

INPUT_SEED = 0


def read_counters(
    task: object, text: str, *, target: str, listener: Listener, workload: str = "", gpu: int = 0, unsafe: bool = False
) -> ProfileReport:
    """The counters of a GPU for the program `text`. target: a GPU target, "" for this machine's; a simulated target
    gives estimates.

    Raises what compiling and `profile_program` raise, BadInput for an unknown task or workload, and ToolchainError
    without the vendor's profiler.
    """
    from hipwright.measure.profiling.profiler import profile_program
    from hipwright.measure.profiling.vendors import find_tool
    from hipwright.program import parse

    source, parsed = task_source(task), parse(text)
    if TARGETS.is_simulated(target):
        return _simulated(listener, source, parsed, target, workload, unsafe)
    kind, arch = _device(target, gpu)
    find_tool(kind)  # before the slow part
    subject = _prepare(listener, source, parsed, kind, arch, workload, unsafe)
    listener("stage", {"text": f"profiling on GPU {gpu} ({arch}): the kernels run once for each group of counters"})
    return profile_program(subject, index=gpu, unsafe=unsafe)


def _simulated(
    listener: Listener, task: TaskSource, parsed: Parsed, target: str, workload: str, unsafe: bool
) -> ProfileReport:
    """The counts of a simulated GPU, and times by a model."""
    from hipwright import config
    from hipwright.measure.profiling.simulated import profile_simulated
    from hipwright.toolchain.cache import BuildCache
    from hipwright.toolchain.sim import build as sim

    cache = BuildCache(config.cache_dir())
    build = _compiled(sim.build(parsed.hip, target, parsed.defines(), cache=cache, unsafe=unsafe), target)
    subject = _with_inputs(listener, task, parsed, (target, target), build, cache, workload, unsafe)
    listener("stage", {"text": f"counting in software on {target}: no GPU, and no measurement"})
    return profile_simulated(subject, cache, unsafe=unsafe)


def _device(target: str, index: int) -> tuple[str, str]:
    """(kind, architecture) of the GPU to use. Raises BadInput and DeviceError."""
    from hipwright.device.topology import choose
    from hipwright.errors import BadInput

    if target and not TARGETS.is_gpu(target):
        others = ", ".join(known.name for known in TARGETS.simulated)
        hint = f"{TARGETS.gpu_choices('--target {}')}; estimates without a GPU: {others}"
        raise BadInput(f"no counters can be read of target {target!r}", hint=hint)
    (found,) = choose(str(index), target or None)
    return found.kind, found.architecture


def _prepare(
    listener: Listener, task: TaskSource, parsed: Parsed, kind: str, arch: str, workload: str, unsafe: bool
) -> ProfiledProgram:
    """The built program with the task's inputs and state: everything that the profiled process needs."""
    from hipwright import config
    from hipwright.toolchain.cache import BuildCache

    cache = BuildCache(config.cache_dir())
    build = _build(parsed, kind, arch, cache, unsafe)
    return _with_inputs(listener, task, parsed, (kind, arch), build, cache, workload, unsafe)


def _with_inputs(
    listener: Listener,
    task: TaskSource,
    parsed: Parsed,
    where: tuple[str, str],
    build: Build,
    cache: BuildCache,
    workload: str,
    unsafe: bool,
) -> ProfiledProgram:
    """The built program with a workload's inputs and state. where: (target, architecture)."""
    from hipwright.errors import BadInput
    from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileJob

    listener("stage", {"text": f"opening the task {Path(task.shown).name} in its sandbox"})
    with (
        Zygote(("torch", "hipwright.task.host.warm"), unsafe=unsafe, name="task host") as host,
        task.open(host) as handle,
    ):
        names = [known.name for known in handle.task.workloads]
        if workload and workload not in names:
            raise BadInput(f"the task has no workload {workload!r}", hint=f"workloads: {', '.join(names)}")
        inputs, state = handle.inputs(workload or names[0], INPUT_SEED), handle.init_state(INPUT_SEED)
    job = ProfileJob(target=where[0], text=parsed.text)
    return ProfiledProgram(job, where[1], build, cache.get(build.blob), inputs, state)


def _build(parsed: Parsed, kind: str, arch: str, cache: Any, unsafe: bool) -> Build:
    """Compiles for the GPU. Raises CompileError when the source is wrong."""
    from hipwright.toolchain.gpu_compilers import GPU_COMPILERS
    from hipwright.toolchain.pool import CompilePool

    compiler = GPU_COMPILERS[TARGETS.gpu(kind)]
    with compiler.zygote(unsafe=unsafe) as zygote, CompilePool(zygote, 1) as pool:
        build = compiler.build(parsed.hip, parsed.defines(), arch=arch, pool=pool, cache=cache, unsafe=unsafe)
    return _compiled(build, arch)


def _compiled(build: Build, arch: str) -> Build:
    """The build. Raises CompileError where the source is wrong."""
    from hipwright.errors import CompileError

    if not build.ok:
        raise CompileError(
            f"the program does not compile for {arch}: {build.log.splitlines()[0]}", hint=build.log[:2000]
        )
    return build


def program_counters(
    task: object, program: Program, listener: Listener, *, target: str, unsafe: bool = False
) -> ProfileReport:
    """As `read_counters`, for a program with its own values of the knobs.

    Raises ProgramError for wrong text or knobs before any process starts.
    """
    from hipwright.program import parse
    from hipwright.program.knobs import text_with_knobs

    parse(program.text).defines(program.knobs)
    return read_counters(task, text_with_knobs(program), target=target, unsafe=unsafe, listener=listener)
