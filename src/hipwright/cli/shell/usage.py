"""A wrong command line as one line that blames the option, and as the same in JSON."""

from __future__ import annotations

from typing import Any

from hipwright.cli.shell.command import option_name, path_of
from hipwright.errors import BadInput
from hipwright.nearest import nearest

SOURCES = "hipwright.sources"
"""The key of a context's meta: where the value of an option comes from, by (command, option)."""


def usage_error(error: Any) -> BadInput:
    """A usage error of typer as bad input. evidence: the command, and the option or argument at fault."""
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "hipwright")
    message, evidence = str(error.format_message()), {"command": command}
    option = _option(error)
    if option:
        evidence["option"] = option
    if (wrong := getattr(error, "option_name", None)) is not None and type(error).__name__ == "NoSuchOption":
        near = nearest(str(wrong), _options(context)) or next(iter(error.possibilities or ()), None)
        message = f"{command} has no option {wrong}" + (f": did you mean {near}?" if near else "")
    elif (where := _where(error, context)) is not None:
        message = f"{where}: {message}"
        evidence["where"] = where
    return BadInput(message, hint=f"{command} --help-all shows what is accepted", evidence=evidence)


def _option(error: Any) -> str:
    param = getattr(error, "param", None)
    if param is not None:
        names = [*getattr(param, "opts", ())]
        long = [name for name in names if name.startswith("--")]
        return str((long or [getattr(param, "metavar", "") or param.name])[0])
    return str(getattr(error, "option_name", None) or "")


def _options(context: Any) -> list[str]:
    params = context.command.get_params(context) if context is not None else []
    return [name for param in params for name in getattr(param, "opts", ()) if name.startswith("--")]


def _where(error: Any, context: Any) -> str | None:
    """The config file or variable that a wrong value came from; None where it came from the command line."""
    param = getattr(error, "param", None)
    if param is None or context is None:
        return None
    source = context.get_parameter_source(param.name)
    if source is None or source.name != "DEFAULT_MAP":
        return None
    found = context.meta.get(SOURCES, {}).get((path_of(context), option_name(param)))
    return None if found is None else str(found)
