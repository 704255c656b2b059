"""`hipwright contact`: what a machine with an AMD GPU does with all that hipwright needs, as one archive to send."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hipwright.cli import exit_codes
from hipwright.cli.options import Json, Unsafe
from hipwright.cli.output import CommandOutput

if TYPE_CHECKING:
    from hipwright.api.contact import ContactReport


def contact(
    out: Annotated[Path, typer.Option("--out", help="The folder of the archive and the page.")] = Path(),
    programs: Annotated[int, typer.Option("--programs", help="Programs to judge and time.", min=1, max=500)] = 30,
    suite: Annotated[
        Path | None,
        typer.Option(
            "--suite", help="Their tasks: a folder, or a suite. Without it: the suite kernels, or the package's."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="Time for everything.", min=1)] = 10.0,
    gpu: Annotated[int | None, typer.Option("--gpu", help="Which AMD GPU, by number.", min=0)] = None,
    unsafe: Unsafe = False,
    json_mode: Json = False,
) -> int:
    """Try an AMD GPU: driver, compilers, launches, faults, timing, programs; writes a page and an archive to send."""
    from hipwright.api.contact import ContactRequest, run_contact

    output = CommandOutput(json_mode=json_mode)
    request = ContactRequest(out=out, gpu=gpu, count=programs, minutes=minutes, suite=suite, unsafe=unsafe)
    report = run_contact(request, listener=output.stages())
    if json_mode:
        output.result({"ok": report.ok, **report.to_dict()})
    else:
        _print(output, report)
    return 0 if report.ok else exit_codes.INFRASTRUCTURE


def _print(output: CommandOutput, report: ContactReport) -> None:
    """A line a step, what to do for those that failed, and where the files are."""
    console, marks = output.console(), {"ok": "green", "failed": "bold red", "skipped": "yellow"}
    simulated = ": SIMULATED, no AMD GPU; its times say nothing of one" if report.simulated else ""
    console.print(f"{report.gpu} ({report.architecture}){simulated}")
    for step in report.steps:
        console.print(f"{step.status:>8}", style=marks[step.status], end="  ")
        console.print(f"{step.title} ({step.seconds:.1f} s)")
        if step.status != "ok":
            console.print(f"{'':>10}{step.message}")
            console.print(f"{'':>10}next: {step.hint}", style="dim")
    console.print(f"page: {report.page}")
    console.print(f"archive to send: {report.archive}")
