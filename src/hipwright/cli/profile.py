"""`hipwright profile`: what the hardware counters say of a program's kernels, and what holds each back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.cli import session
from hipwright.cli.options import Json, TaskFile, Unsafe
from hipwright.cli.output import Face, clean

if TYPE_CHECKING:
    from hipwright.events import Listener
    from hipwright.measure.profile import Profile
    from hipwright.measure.profiler import ProfiledProgram, ProfileReport
    from hipwright.program import Parsed
    from hipwright.records import Build

INPUT_SEED = 0
COLUMNS = {
    "duration_us": "µs",
    "dram_throughput_pct": "DRAM %",
    "l2_hit_pct": "L2 hit %",
    "valu_pct": "VALU %",
    "matrix_pct": "matrix %",
    "occupancy_pct": "occupancy %",
    "load_efficiency_pct": "loads used %",
    "registers": "registers",
}
"""The figures of the table; --json has all of them."""


def profile(
    task: TaskFile,
    program: Annotated[Path, typer.Argument(help="The program: HIP source and launch plan.", metavar="PROGRAM")],
    target: Annotated[str, typer.Option("--target", help="cuda or rocm. Without it: what this machine has.")] = "",
    workload: Annotated[str, typer.Option("--workload", help="The inputs, by name. Without it: the task's own.")] = "",
    gpu: Annotated[int, typer.Option("--gpu", help="Which GPU, by number.", min=0)] = 0,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Count what PROGRAM's kernels do on a GPU (Nsight Compute or rocprofv3), once, after a warm-up."""
    face = Face(json_mode=json_mode)
    session.existing_file(task, "task")
    text = session.read_text(program, "program")
    report = read_counters(
        task, text, target=target, workload=workload, gpu=gpu, unsafe=unsafe, listener=lambda _, d: face.say(d["text"])
    )
    if json_mode:
        face.result({"program": str(program), "workload": workload or "given", **report.to_dict()})
    else:
        _print(face, report)
    return 0


def read_counters(
    task: Path, text: str, *, target: str, listener: Listener, workload: str = "", gpu: int = 0, unsafe: bool = False
) -> ProfileReport:
    """What the counters of a GPU say of the program `text`. Raises what compiling and `profile_program` raise, and
    ToolchainError without the vendor's profiler."""
    from hipwright.measure.profiler import find_tool, profile_program
    from hipwright.program import parse

    parsed = parse(text)
    kind, arch = _device(target, gpu)
    find_tool(kind)  # before the slow part
    subject = _prepare(listener, task, parsed, kind, arch, workload, unsafe)
    listener("stage", {"text": f"profiling on GPU {gpu} ({arch}): the kernels run once for each group of counters"})
    return profile_program(subject, index=gpu, unsafe=unsafe)


def _device(target: str, index: int) -> tuple[Any, str]:
    """(kind, architecture) of the GPU to use. Raises BadInput and DeviceError."""
    from hipwright.device.topology import choose
    from hipwright.errors import BadInput

    if target not in ("", "cuda", "rocm"):
        raise BadInput(f"no counters can be read of target {target!r}", hint="--target cuda or --target rocm")
    (found,) = choose(str(index), target or None)
    return found.kind, found.architecture


def _prepare(
    listener: Listener, task: Path, parsed: Parsed, kind: Any, arch: str, workload: str, unsafe: bool
) -> ProfiledProgram:
    """The program built, and the task's inputs and state drawn: everything that the profiled process needs."""
    from hipwright import config
    from hipwright.errors import BadInput
    from hipwright.measure.profiler import ProfiledProgram, ProfileJob
    from hipwright.sandbox import Zygote
    from hipwright.task import open_task
    from hipwright.toolchain.cache import BuildCache

    cache = BuildCache(config.cache_dir())
    build = _build(parsed, kind, arch, cache, unsafe)
    listener("stage", {"text": f"opening the task {task.name} in its sandbox"})
    with (
        Zygote(("torch", "hipwright.task.host.warm"), unsafe=unsafe, name="task host") as host,
        open_task(task, host) as handle,
    ):
        names = [known.name for known in handle.task.workloads]
        if workload and workload not in names:
            raise BadInput(f"the task has no workload {workload!r}", hint=f"workloads: {', '.join(names)}")
        inputs, state = handle.inputs(workload or names[0], INPUT_SEED), handle.init_state(INPUT_SEED)
    return ProfiledProgram(ProfileJob(target=kind, text=parsed.text), arch, build, cache.get(build.blob), inputs, state)


def _build(parsed: Parsed, kind: Any, arch: str, cache: Any, unsafe: bool) -> Build:
    """Compile for the GPU. CompileError when the source is wrong."""
    from hipwright.errors import CompileError
    from hipwright.toolchain.amd import hiprtc
    from hipwright.toolchain.nvidia import nvrtc
    from hipwright.toolchain.pool import CompilePool

    compiler = (hiprtc if kind == "rocm" else nvrtc).zygote(unsafe=unsafe)
    with compiler as zygote, CompilePool(zygote, 1) as pool:
        if kind == "rocm":
            build = hiprtc.build(parsed.hip, parsed.defines(), arch=arch, pool=pool, cache=cache, unsafe=unsafe)
        else:
            build = nvrtc.build(parsed.hip, parsed.defines(), arch=arch, pool=pool, cache=cache)
    if not build.ok:
        raise CompileError(
            f"the program does not compile for {arch}: {build.log.splitlines()[0]}", hint=build.log[:2000]
        )
    return build


def _print(face: Face, report: ProfileReport) -> None:
    """A table of the launches, then each one's bottleneck."""
    from hipwright.cli.tables import plain_table

    out = face.tables()
    heads = ["", "kernel", "blocks x threads", *COLUMNS.values()]
    rows = [
        [str(p.number), _name(p), _geometry(p), *(_shown(getattr(p, name)) for name in COLUMNS)]
        for p in report.profiles
    ]
    out.print(plain_table(heads, rows, right=[*COLUMNS.values()]))
    for profile in report.profiles:
        if profile.bottleneck is not None:
            out.print(f"{profile.number} {_name(profile)}: {clean(profile.bottleneck.text)}")
    for note in report.notes:
        out.print(f"note: {clean(note)}", style="yellow")


def _name(profile: Profile) -> str:
    """The kernel, without a library's template arguments."""
    name = profile.kernel if profile.own else profile.kernel.partition("<")[0].rpartition("::")[2] + " (library)"
    return clean(name.removeprefix("void "))


def _geometry(profile: Profile) -> str:
    if profile.grid is None or profile.block is None:
        return "-"
    return " x ".join("·".join(str(n) for n in dims if n > 1) or "1" for dims in (profile.grid, profile.block))


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
