"""`hipwright`: all commands, and the place where an error becomes a line and an exit code.

Exit codes: 0 pass, 1 the candidate or the run failed, 2 bad input, 3 infrastructure, 130 interrupted by Ctrl-C, 143 by
SIGTERM.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hipwright import __version__
from hipwright.api.plain import error_object, error_owner
from hipwright.cli import (
    ablate,
    audit,
    backward,
    bench,
    combine,
    contact,
    dataset,
    doctor,
    evaluate,
    exit_codes,
    export,
    mcp,
    optimize,
    profile,
    score,
    synth,
    train,
)
from hipwright.cli.display.grouped_help import GroupedCommands
from hipwright.cli.fleet import commands as fleet
from hipwright.cli.output import print_error, print_json
from hipwright.cli.runs import queries, resume, view
from hipwright.cli.whole import model
from hipwright.disk import file_error
from hipwright.errors import HipwrightError
from hipwright.stopping import KEPT, StopSignals, end_process, interrupted_code, interrupted_object

app = typer.Typer(
    name="hipwright",
    help="Fast, verified HIP kernels for AMD GPUs from PyTorch code.",
    cls=GroupedCommands,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("doctor")(doctor.doctor)
app.command("contact")(contact.contact)
app.command("optimize")(optimize.optimize)
app.command("resume")(resume.resume)
app.command("model")(model.model)
app.command("eval")(evaluate.evaluate)
app.command("backward")(backward.backward)
app.command("combine")(combine.combine)
app.command("score")(score.score)
app.command("bench")(bench.bench)
app.command("profile")(profile.profile)
app.command("audit")(audit.audit)
app.command("ablate")(ablate.ablate)
app.command("synth")(synth.synth)
app.command("show")(queries.show)
app.command("compare")(queries.compare)
app.command("view")(view.view)
app.command("export")(export.export)
app.command("serve")(train.serve)
app.command("mcp")(mcp.mcp)
app.add_typer(queries.app, name="runs")
app.add_typer(dataset.app, name="dataset")
app.add_typer(train.app, name="train")
app.add_typer(fleet.app, name="fleet")


def _print_version(value: bool) -> None:
    if value:
        print(f"hipwright {__version__}")
        raise typer.Exit


@app.callback()
def hipwright(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Fast, verified HIP kernels for AMD GPUs from PyTorch code."""


def run() -> NoReturn:
    """The console script."""
    code = main(sys.argv[1:])
    if code > 128:
        end_process(code)
    sys.exit(code)


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, never raised (unless HIPWRIGHT_DEBUG=1)."""
    json_mode = "--json" in argv
    try:
        with StopSignals(json_mode=json_mode) as stop:
            code = _main(argv, json_mode)
            return _interrupted(json_mode) if stop.received and not stop.answered else code
    except KeyboardInterrupt:  # between two statements of this function
        return exit_codes.INTERRUPTED


def _main(argv: Sequence[str], json_mode: bool) -> int:
    try:
        code = typer.main.get_command(app)(args=list(argv), prog_name="hipwright", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except HipwrightError as error:
        return _report(error, json_mode)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(json_mode)
    except BrokenPipeError:
        # the reader has closed the pipe (`hipwright runs | head`): nothing may be flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _unexpected(error, argv)


def _interrupted(json_mode: bool) -> int:
    """The last word of a command that has none of its own for an interruption."""
    code = interrupted_code()
    print(f"interrupted: {KEPT}", file=sys.stderr, flush=True)
    if json_mode:
        print_json(interrupted_object(code))
    return code


def _report(error: HipwrightError, json_mode: bool) -> int:
    if os.environ.get("HIPWRIGHT_DEBUG") == "1":
        raise error
    print_error(error_owner(error), error.message, error.hint)
    if json_mode:
        print_json(error_object(error))
    return error.exit_code


def _places(argv: Sequence[str]) -> list[str]:
    """Where a command may write: the paths among its arguments first."""
    from hipwright import config

    words = [word.partition("=")[2] or word for word in argv]
    return [word for word in words if os.sep in word or Path(word).exists()] + [
        str(place) for place in (config.home(), config.cache_dir(), tempfile.gettempdir(), ".")
    ]


def _unexpected(error: Exception, argv: Sequence[str]) -> int:
    """A usage error of the command line (exit 2), a file that cannot be written, or a defect of hipwright (exit 3)."""
    usage = getattr(error, "format_message", None)  # typer's own error class differs between its versions
    if os.environ.get("HIPWRIGHT_DEBUG") == "1" and not usage:
        raise error
    if usage:
        wrapped = _as_bad_input(str(usage()), getattr(error, "ctx", None))
    elif isinstance(error, OSError):
        wrapped = file_error(error, _places(argv))
    else:
        wrapped = HipwrightError(
            f"internal error: {type(error).__name__}: {error}",
            hint="this is a bug in hipwright: HIPWRIGHT_DEBUG=1 shows the traceback to report",
        )
    return _report(wrapped, "--json" in argv)


def _as_bad_input(message: str, context: Any) -> HipwrightError:
    from hipwright.errors import BadInput

    command = getattr(context, "command_path", "hipwright")
    return BadInput(message, hint=f"{command} --help shows what is accepted")
