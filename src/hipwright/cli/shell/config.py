"""`hipwright config`: each setting with where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hipwright import config as limits
from hipwright.cli.options import Json
from hipwright.cli.output import CommandOutput
from hipwright.errors import BadInput


def config(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Every option of this command, defaults too.")
    ] = None,
    json_mode: Json = False,
) -> int:
    """Each setting with its value, and whether a file, the environment or the default decides it."""
    from hipwright.cli.shell.config_file import commands_of, config_files, settings, user_file
    from hipwright.nearest import did_you_mean

    output, name = CommandOutput(json_mode=json_mode), " ".join(command or ())
    commands = commands_of(context.find_root().command)
    if name and name not in commands:
        raise BadInput(f"no command {name!r}{did_you_mean(name, commands)}")
    files = config_files(Path.cwd())
    rows = _rows(settings(files, commands), commands, name)
    if json_mode:
        read = [{"kind": one.kind, "path": str(one.path)} for one in files]
        output.result({"files": read, "user_file": str(user_file()), "settings": rows})
        return 0
    from hipwright.cli.display.fitted import plain_table

    console = output.console()
    for one in files:
        console.print(f"{one.kind} file: {one.path}")
    if not files:
        console.print(f"no config file: hipwright.toml here or above, or {user_file()}", style="dim")
    shown = [(one["command"] or "-", one["key"], _shown(one["value"]), one["source"], one["where"]) for one in rows]
    console.print(plain_table(("command", "setting", "value", "from", "where"), shown))
    return 0


def _rows(found: list[Any], commands: dict[str, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """What is set, the general settings, and with a command's name all its options; one row for each."""
    from hipwright.cli.shell.config_file import Setting

    defaults = {
        "home": str(limits.home()),
        "cache": str(limits.cache_dir()),
        "outage_seconds": limits.outage_seconds(),
    }
    every = [one for one in found if not name or one.command in ("", name)]
    every += [Setting("", key, value, "default", "") for key, value in defaults.items()]
    every += [Setting(name, key, param.default, "default", "") for key, param in commands.get(name, {}).items()]
    kept: dict[tuple[str, str], Setting] = {}
    for one in every:
        kept.setdefault((one.command, one.key), one)
    return [
        {"command": s.command, "key": s.key, "value": _plain(s.value), "source": s.source, "where": s.where}
        for s in sorted(kept.values(), key=lambda s: (s.command, s.key))
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
