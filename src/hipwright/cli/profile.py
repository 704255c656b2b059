"""`hipwright profile`: the hardware counters of a program's kernels, and what limits each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hipwright.api.plain import clean
from hipwright.cli.options import Json, TaskFile, Unsafe
from hipwright.cli.output import CommandOutput
from hipwright.events import doing
from hipwright.targets import TARGETS

if TYPE_CHECKING:
    from hipwright.measure.profiling.profile import Profile
    from hipwright.measure.profiling.profiler import ProfileReport

TARGET_HELP = f"{TARGETS.gpu_choices()}, or {TARGETS.simulated[0].name} and the like for estimates without a GPU. \
Without it: what this machine has."
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
    target: Annotated[str, typer.Option("--target", help=TARGET_HELP)] = "",
    workload: Annotated[str, typer.Option("--workload", help="The inputs, by name. Without it: the task's own.")] = "",
    gpu: Annotated[int, typer.Option("--gpu", help="Which GPU, by number.", min=0)] = 0,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Count what PROGRAM's kernels do on a GPU (Nsight Compute or rocprofv3), once, after a warm-up."""
    from hipwright.api.inputs import program_from, task_source
    from hipwright.api.profile import read_counters

    output, source = CommandOutput(json_mode=json_mode), task_source(task)
    text = program_from(program, source).text

    def listener(kind: str, data: dict[str, Any]) -> None:
        doing(str(data["text"]))
        output.say(data["text"])

    report = read_counters(source, text, target=target, workload=workload, gpu=gpu, unsafe=unsafe, listener=listener)
    if json_mode:
        output.result({"program": str(program), "workload": workload or "given", **report.to_dict()})
    else:
        _print(output, report)
    return 0


def _print(output: CommandOutput, report: ProfileReport) -> None:
    """A table of the launches, then each one's bottleneck."""
    from hipwright.cli.display.fitted import plain_table

    out = output.console()
    simulated = next((profile.basis for profile in report.profiles if profile.basis != "counters"), "")
    if simulated:
        out.print(f"{simulated}: {report.profiles[0].device}", style="bold")
    heads = ["", "kernel", "blocks x threads", *COLUMNS.values()]
    rows = [
        [str(p.number), _name(p), _geometry(p), *(_shown(getattr(p, name)) for name in COLUMNS)]
        for p in report.profiles
    ]
    out.print(plain_table(heads, rows, right=[*COLUMNS.values()]))
    for profile in report.profiles:
        if profile.bottleneck is not None:
            out.print(f"{profile.number} {_name(profile)}: {clean(profile.bottleneck.text)}")
        if profile.instructions:
            waits = ", ".join(f"{cause} {count:,}" for cause, count in profile.waits.items()) or "none"
            out.print(f"  {sum(profile.instructions.values()):,} instructions: {_mix(profile)}; waits: {waits}")
    for note in report.notes:
        out.print(f"note: {clean(note)}", style="yellow")


def _mix(profile: Profile) -> str:
    from hipwright.measure.profiling.simulated import mix_text

    return mix_text(profile.instructions)


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
