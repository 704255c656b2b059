"""`hipwright`: all commands, and the place where an error becomes a line and an exit code.

Exit codes: 0 pass, 1 the candidate or the run failed, 2 bad input, 3 infrastructure, 130 interrupted by Ctrl-C, 143 by
SIGTERM.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, NoReturn

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
from hipwright.cli.display.heartbeat import beating
from hipwright.cli.display.verbosity import Verbosity, set_verbosity
from hipwright.cli.fleet import commands as fleet
from hipwright.cli.output import print_error, print_json
from hipwright.cli.runs import archive, queries, resume, view
from hipwright.cli.shell import config as config_command
from hipwright.cli.shell.command import GroupedCommands, HelpfulCommand
from hipwright.cli.shell.usage import SOURCES, usage_error
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
COMMANDS: dict[str, Callable[..., int]] = {
    "doctor": doctor.doctor,
    "contact": contact.contact,
    "config": config_command.config,
    "optimize": optimize.optimize,
    "resume": resume.resume,
    "model": model.model,
    "eval": evaluate.evaluate,
    "backward": backward.backward,
    "combine": combine.combine,
    "score": score.score,
    "bench": bench.bench,
    "profile": profile.profile,
    "audit": audit.audit,
    "ablate": ablate.ablate,
    "synth": synth.synth,
    "show": queries.show,
    "compare": queries.compare,
    "view": view.view,
    "export": export.export,
    "serve": train.serve,
    "mcp": mcp.mcp,
}
SERVERS = {"mcp", "view", "serve"}
for _name, _function in COMMANDS.items():
    app.command(_name, cls=HelpfulCommand)(_function)
app.add_typer(queries.app, name="runs")
app.add_typer(archive.app, name="archive")
app.add_typer(dataset.app, name="dataset")
app.add_typer(train.app, name="train")
app.add_typer(fleet.app, name="fleet")


def _print_version(value: bool) -> None:
    if value:
        print(f"hipwright {__version__}")
        raise typer.Exit


@app.callback()
def hipwright(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Fast, verified HIP kernels for AMD GPUs from PyTorch code."""
    if context.invoked_subcommand not in (None, "config"):
        _take_config(context)


def _take_config(context: typer.Context) -> None:
    """Makes the values of the environment and of the config files the defaults of the options."""
    from hipwright.cli.shell.config_file import apply_general, commands_of, config_files, default_map, settings

    commands = commands_of(context.command)
    if found := settings(config_files(Path.cwd()), commands):
        apply_general(found)
        context.default_map = default_map(found, commands)
        context.meta[SOURCES] = {(one.command, one.key): one.where for one in reversed(found)}


def run() -> NoReturn:
    """The console script."""
    code = main(sys.argv[1:])
    if code > 128:
        end_process(code)
    if "torch" in sys.modules and all(one.daemon or one is threading.main_thread() for one in threading.enumerate()):
        # taking a process with torch apart lasts seconds in which nothing is done
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed, never raised (unless HIPWRIGHT_DEBUG=1)."""
    json_mode = "--json" in argv
    set_verbosity(Verbosity.normal)
    try:
        with StopSignals(json_mode=json_mode) as stop, _watched(argv, json_mode):
            code = _main(argv, json_mode)
            return _interrupted(json_mode) if stop.received and not stop.answered else code
    except KeyboardInterrupt:  # between two statements of this function
        return exit_codes.INTERRUPTED


def _watched(argv: Sequence[str], json_mode: bool) -> AbstractContextManager[None]:
    """The line that says what is done while nothing is printed; servers have none, as they wait."""
    return nullcontext() if SERVERS & set(argv[:2]) else beating(json_mode=json_mode)


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
        wrapped: HipwrightError = usage_error(error)
    elif isinstance(error, OSError):
        wrapped = file_error(error, _places(argv))
    else:
        wrapped = HipwrightError(
            f"internal error: {type(error).__name__}: {error}",
            hint="this is a bug in hipwright: HIPWRIGHT_DEBUG=1 shows the traceback to report",
        )
    return _report(wrapped, "--json" in argv)
