"""The help of groups of commands: whole summaries, in sections; a group without a command shows its help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SECTIONS = {
    "A machine": ("doctor", "contact"),
    "Programs": ("optimize", "resume", "model", "eval", "score", "profile", "backward", "combine", "export"),
    "What was found": ("runs", "show", "compare", "view"),
    "Many tasks": ("bench", "ablate", "audit", "synth", "fleet"),
    "Data, learning, agents": ("dataset", "train", "serve", "mcp"),
}
"""The commands in the order of the help; one that is not named comes last, under "Others"."""
_LONGEST = 1000


class WholeSummaries(TyperGroup):
    """A group whose help does not cut the commands' summaries."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments; none mean --help."""
        return super().parse_args(ctx, args or ["--help"])

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
