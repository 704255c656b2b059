"""The class of every command: its help has an example and its common options; all have --quiet and --verbose."""

from __future__ import annotations

import textwrap
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hipwright.cli.display.verbosity import Verbosity, set_verbosity
from hipwright.cli.shell.examples import COMMON, EXAMPLES

_ALL = "hipwright.help_all"
_LONGEST = 1000
_WITH_OWN_SETTINGS = {"optimize": ("--resume", "--replay")}
"""By command, the options that name a run whose settings hold."""


def path_of(ctx: Any) -> str:
    """A command's name without the program's: "dataset build"."""
    return " ".join(str(ctx.command_path).split()[1:])


def option_name(param: Any) -> str:
    """An option as the config file and the help write it: "max_usd" for --max-usd, "json" for --json."""
    long = next((name for name in param.opts if name.startswith("--")), param.name)
    return str(long).lstrip("-").replace("-", "_")


def _quiet(value: bool) -> None:
    if value:
        set_verbosity(Verbosity.quiet)


def _verbose(value: bool) -> None:
    if value:
        set_verbosity(Verbosity.verbose)


def _help_all(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


@cache
def _shared() -> tuple[Any, ...]:
    """The options that every command has."""

    def options(
        quiet: Annotated[
            bool, typer.Option("--quiet", "-q", callback=_quiet, expose_value=False, help="Results and errors alone.")
        ] = False,
        verbose: Annotated[
            bool,
            typer.Option("--verbose", "-v", callback=_verbose, expose_value=False, help="All evidence too."),
        ] = False,
        help_all: Annotated[
            bool,
            typer.Option(
                "--help-all", callback=_help_all, expose_value=False, is_eager=True, help="Show every option and exit."
            ),
        ] = False,
    ) -> None:
        """Holds the options."""

    holder = typer.Typer(add_completion=False, rich_markup_mode=None)
    holder.command()(options)
    return tuple(typer.main.get_command(holder).params)


class _WithExample:
    """The help of a command or a group with an example, and the options that all have."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own options, then those of every command."""
        own = list(super().get_params(ctx))  # type: ignore[misc]
        return [*own[:-1], *_shared(), own[-1]] if own else [*_shared()]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Writes the summary, then the example."""
        super().format_help_text(ctx, formatter)  # type: ignore[misc]
        if example := EXAMPLES.get(path_of(ctx)):
            formatter.write_paragraph()
            formatter.write(f"  Example: {_folded(example, formatter.width - 13)}\n")

    def write_params(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, and the common options or all of them."""
        everything = ctx.meta.get(_ALL, False)
        common = COMMON.get(path_of(ctx))
        shown, left = [], 0
        for param in self.get_params(ctx):
            rare = param.param_type_name == "option" and common is not None and option_name(param) not in common
            shared = param in _shared() and option_name(param) != "help_all"
            if (rare or shared) and not everything and option_name(param) not in ("help_all", "help"):
                left += 1
            elif (record := param.get_help_record(ctx)) is not None:
                shown.append((param.param_type_name, option_name(param), record))
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            rows = [_counted(record, name, left) for found, name, record in shown if found == kind]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _folded(line: str, width: int) -> str:
    """A command line in lines that a shell reads as one."""
    return " \\\n    ".join(textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False))


class HelpfulCommand(_WithExample, TyperCommand):
    """A command of hipwright."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. A run that goes on or is repeated has its own settings, not those of files."""
        if any(word.partition("=")[0] in _WITH_OWN_SETTINGS.get(path_of(ctx), ()) for word in args):
            ctx.default_map = None
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the arguments, and the common options or all of them."""
        self.write_params(ctx, formatter)


def _counted(record: tuple[str, str], name: str, left: int) -> tuple[str, str]:
    return (record[0], f"Show {left} more options and exit.") if name == "help_all" and left else record


SECTIONS = {
    "A machine": ("doctor", "contact", "config"),
    "Programs": ("optimize", "resume", "model", "eval", "score", "profile", "backward", "combine", "export"),
    "What was found": ("runs", "show", "compare", "view", "archive"),
    "Many tasks": ("bench", "ablate", "audit", "synth", "fleet"),
    "Data, learning, agents": ("dataset", "train", "serve", "mcp"),
}
"""The commands in the order of the help; one that is not named comes last, under "Others"."""


class WholeSummaries(_WithExample, TyperGroup):
    """A group whose help does not cut the commands' summaries."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments; none mean --help, where the group alone is no command."""
        return super().parse_args(ctx, args or ([] if self.invoke_without_command else ["--help"]))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the group's own options, then the commands."""
        self.write_params(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands."""
        self._section(ctx, formatter, "Commands", self.list_commands(ctx))

    def _section(self, ctx: Any, formatter: Any, title: str, names: list[str]) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in names]
        rows = [(name, one.get_short_help_str(_LONGEST)) for name, one in commands if one is not None]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class GroupedCommands(WholeSummaries):
    """The commands of hipwright, in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the sections."""
        left = list(self.list_commands(ctx))
        for title, names in SECTIONS.items():
            self._section(ctx, formatter, title, [name for name in names if name in left])
        named = {name for names in SECTIONS.values() for name in names}
        self._section(ctx, formatter, "Others", [name for name in left if name not in named])
