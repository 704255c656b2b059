"""Defaults of options from files: `hipwright.toml`, `[tool.hipwright]` of pyproject.toml, and the user's own.

The project's file is the nearest one of the working folder and those above it; hipwright.toml goes before
pyproject.toml of the same folder. The user's is in the folder hipwright of $XDG_CONFIG_HOME or ~/.config. A table is a
command, as in `[optimize]` or `[dataset.build]`, with its long options as keys; the top has GENERAL. Precedence:
command line, environment, project, user. A project may come from anybody, so its file may not set what weakens
containment or sends keys and data elsewhere.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright.cli.shell.command import option_name
from hipwright.errors import BadInput
from hipwright.nearest import did_you_mean

GENERAL = {"home": "HIPWRIGHT_HOME", "cache": "HIPWRIGHT_CACHE", "outage_seconds": "HIPWRIGHT_OUTAGE_SECONDS"}
"""Keys outside of the tables, and the variable that each stands for."""
NEVER = frozenset({"unsafe", "allow_start", "json"})
"""Options that only the command line and the environment may set."""
USER_ONLY = frozenset({"llm", "host", "read", "model", "main_address", *GENERAL})
"""Options that a project's file may not set: they send keys and data to servers, open the machine, or move files."""
PREFIX = "HIPWRIGHT"
_SHARED = frozenset({"help", "help_all", "version", "install_completion", "show_completion"})


@dataclass(frozen=True)
class ConfigFile:
    """A file that was read. kind: "project" or "user"; table: of hipwright."""

    kind: str
    path: Path
    table: Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """One value. command: "" for a general key; source: "project", "user", "environment" or "default"."""

    command: str
    key: str
    value: Any
    source: str
    where: str


def config_files(folder: Path) -> list[ConfigFile]:
    """The project's file and the user's, in the order of precedence. Raises BadInput for one that is not TOML."""
    found = []
    for parent in (folder, *folder.parents):
        if (one := _of_folder(parent)) is not None:
            found.append(one)
            break
    user = user_file()
    if user.is_file() and all(user != one.path for one in found):
        found.append(ConfigFile("user", user, _read(user)))
    return found


def user_file() -> Path:
    """The user's own file, whether it exists or not."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "hipwright" / "hipwright.toml"


def _of_folder(folder: Path) -> ConfigFile | None:
    own, shared = folder / "hipwright.toml", folder / "pyproject.toml"
    if own.is_file() and own != user_file():
        return ConfigFile("project", own, _read(own))
    if shared.is_file():
        table = _read(shared).get("tool", {}).get("hipwright")
        if table is not None:
            return ConfigFile("project", shared, table)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}", hint="it is a TOML file (docs/cli.md#defaults-in-a-file)") from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error


def commands_of(root: Any) -> dict[str, dict[str, Any]]:
    """{command: {option as a key: parameter}} of the whole command line, groups with options of their own included."""
    found: dict[str, dict[str, Any]] = {}

    def walk(command: Any, path: str) -> None:
        if path:
            options = [p for p in command.params if p.param_type_name == "option" and option_name(p) not in _SHARED]
            found[path] = {option_name(param): param for param in options}
        for name, child in getattr(command, "commands", {}).items():
            walk(child, f"{path} {name}".strip())

    walk(root, "")
    return found


def settings(files: list[ConfigFile], commands: Mapping[str, Mapping[str, Any]]) -> list[Setting]:
    """Every value of the files and of the environment, those that hold first. Raises BadInput for an unknown key."""
    found = list(_from_environment(commands))
    for one in files:
        found += _of_file(one, one.table, "", commands)
    return found


def _from_environment(commands: Mapping[str, Mapping[str, Any]]) -> Iterator[Setting]:
    for key, name in GENERAL.items():
        if os.environ.get(name):
            yield Setting("", key, os.environ[name], "environment", name)
    for command, options in commands.items():
        for key, param in options.items():
            if text := os.environ.get(variable(command, key)):
                value = text.split() if getattr(param, "multiple", False) else text
                yield Setting(command, key, value, "environment", variable(command, key))


def variable(command: str, key: str) -> str:
    """The environment's variable for an option: HIPWRIGHT_DATASET_BUILD_COUNT."""
    return f"{PREFIX}_{command.replace(' ', '_')}_{key}".upper()


def _of_file(
    file: ConfigFile, table: Mapping[str, Any], command: str, commands: Mapping[str, Mapping[str, Any]]
) -> Iterator[Setting]:
    deeper = {c.removeprefix(command).split()[0] for c in commands if c.startswith(command) and c != command}
    options = commands.get(command, {}) if command else dict.fromkeys(GENERAL)
    for written, value in table.items():
        key = written.replace("-", "_")
        if isinstance(value, Mapping) and written in deeper:
            yield from _of_file(file, value, f"{command} {written}".strip(), commands)
        elif key not in options or isinstance(value, Mapping):
            raise BadInput(_unknown(file, command, written, value, deeper, options))
        elif key in NEVER or (key in USER_ONLY and file.kind == "project"):
            where = "the command line" if key in NEVER else f"the command line, or for yourself in {user_file()}"
            any_file = "a file" if key in NEVER else "a project's file"
            raise BadInput(f"{file.path}: {key} may not be set in {any_file}", hint=f"set it on {where}")
        else:
            yield Setting(command, key, value, file.kind, str(file.path))


def _unknown(
    file: ConfigFile, command: str, written: str, value: Any, deeper: set[str], options: Mapping[str, Any]
) -> str:
    within = f"[{command.replace(' ', '.')}] has" if command else "there is"
    if isinstance(value, Mapping):
        return f"{file.path}: {within} no command {written!r}{did_you_mean(written, deeper)}"
    what = "option" if command else "key outside of the commands' tables"
    known = {*options, *(deeper if not command else ())}
    return f"{file.path}: {within} no {what} {written!r}{did_you_mean(written, known)}"


def default_map(found: list[Setting], commands: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values as click takes them: {command: {parameter: value}}, nested for groups."""
    defaults: dict[str, Any] = {}
    for one in reversed([s for s in found if s.command]):
        place = defaults
        for word in one.command.split():
            place = place.setdefault(word, {})
        param = commands[one.command][one.key]
        several = getattr(param, "multiple", False) and not isinstance(one.value, list)
        place[param.name] = [one.value] if several else one.value
    return defaults


def apply_general(found: list[Setting]) -> None:
    """Puts the files' general values into the environment, where it has none."""
    for one in found:
        if not one.command and one.source != "environment":
            os.environ.setdefault(GENERAL[one.key], str(one.value))
