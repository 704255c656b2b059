"""`hipwright doctor`: what works on this machine, what each target can prove here, and how to repair the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hipwright.cli import exit_codes
from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput

if TYPE_CHECKING:
    from hipwright.toolchain.probe import ToolCheck


def doctor(json_mode: Json = False) -> int:
    """Check this machine and say how to mend what is missing."""
    from hipwright.api.doctor import NEEDED, machine_checks

    output, checks = CommandOutput(json_mode=json_mode), machine_checks()
    broken = [check for check in checks if not check.ok and check.name in NEEDED]
    if json_mode:
        plain = [{"name": c.name, "ok": c.ok, "detail": c.detail, "fix": c.fix} for c in checks]
        output.result({"ok": not broken, "checks": plain})
    else:
        _print(output, checks, NEEDED)
    return exit_codes.INFRASTRUCTURE if broken else 0


def _print(output: CommandOutput, checks: Sequence[ToolCheck], needed: Sequence[str]) -> None:
    console = output.console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, style = ("ok", "green") if check.ok else ("no", "bold red") if check.name in needed else ("--", "yellow")
        console.print(f"{mark:>4}", style=style, end="  ")
        console.print(f"{check.name:<{width}}  {check.detail}")
        if not check.ok and check.fix:
            console.print(f"{'':>{width + 8}}fix: {check.fix}", style="dim")
