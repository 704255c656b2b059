"""Defaults from files and the environment: who wins, what is refused, and that `hipwright config` says where from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from hipwright.cli.main import app, main
from hipwright.cli.shell.config_file import NEVER, USER_ONLY, commands_of, config_files, default_map, settings
from hipwright.errors import BadInput
from tests.cli.cli_tools import hipwright, one_object

COMMANDS = commands_of(typer.main.get_command(app))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(a project's folder that is the working folder, the user's file)."""
    project, user = tmp_path / "project" / "deep", tmp_path / "config" / "hipwright" / "hipwright.toml"
    for folder in (project, user.parent):
        folder.mkdir(parents=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return project.parent, user


def taken(folder: Path) -> dict[str, Any]:
    return default_map(settings(config_files(folder), COMMANDS), COMMANDS)


def test_the_precedence(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, user = places
    user.write_text("[optimize]\nbudget = 1\nseed = 1\nworkers = 1\n")
    (project / "hipwright.toml").write_text("[optimize]\nbudget = 2\nseed = 2\n")
    monkeypatch.setenv("HIPWRIGHT_OPTIMIZE_BUDGET", "3")
    assert taken(Path.cwd())["optimize"] == {"workers": 1, "seed": 2, "budget": "3"}
    (project / "hipwright.toml").unlink()
    (project / "pyproject.toml").write_text("[tool.hipwright.optimize]\nseed = 5\n[tool.other]\nx = 1\n")
    assert taken(Path.cwd())["optimize"]["seed"] == 5


def test_the_nearest_file_is_the_project_s(places: tuple[Path, Path]) -> None:
    project, _ = places
    (project / "hipwright.toml").write_text("[optimize]\nseed = 1\n")
    (project / "pyproject.toml").write_text("[tool.hipwright.optimize]\nseed = 9\n")
    assert taken(Path.cwd())["optimize"] == {"seed": 1}
    (project / "deep" / "hipwright.toml").write_text("[optimize]\nseed = 2\n")
    assert taken(Path.cwd())["optimize"] == {"seed": 2}


def test_a_command_takes_them(places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The value reaches the option: a port out of range is refused, by the file's name, unless the line has one."""
    project, _ = places
    (project / "hipwright.toml").write_text("[runs.faults]\ncheck = true\n[view]\nport = 99999\n")
    assert main(["view"]) == 2
    said = capsys.readouterr().err
    assert "hipwright.toml" in said and "--port" in said
    assert main(["view", "--port", "70000"]) == 2
    assert "hipwright.toml" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[optimize]\nbudgt = 1\n", "[optimize] has no option 'budgt': did you mean budget?"),
        ("[optimise]\nbudget = 1\n", "there is no command 'optimise': did you mean optimize?"),
        ("[dataset.biuld]\ncount = 1\n", "[dataset] has no command 'biuld': did you mean build?"),
        ("hom = 'x'\n", "no key outside of the commands' tables 'hom': did you mean home?"),
        ("[optimize]\nunsafe = true\n", "unsafe may not be set in a file"),
        ("[optimize]\nllm = ['openai:x@http://elsewhere']\n", "llm may not be set in a project's file"),
        ("home = '/etc'\n", "home may not be set in a project's file"),
        ("[optimize\n", "hipwright.toml"),
    ],
)
def test_a_wrong_file_is_one_line(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    project, _ = places
    (project / "hipwright.toml").write_text(text)
    for line in (["doctor"], ["config"]):
        assert main(line) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: bad input: ") and says in said.splitlines()[0] and "Traceback" not in said
    assert main(["doctor", "--help"]) in (0, 2)


def test_the_user_s_own_file_may_name_models_but_never_unsafe(places: tuple[Path, Path]) -> None:
    _, user = places
    user.write_text("home = '/tmp/elsewhere'\n[optimize]\nllm = 'anthropic:x'\n")
    assert taken(Path.cwd())["optimize"] == {"llm": ["anthropic:x"]}
    user.write_text("[optimize]\nunsafe = true\n")
    with pytest.raises(BadInput):
        taken(Path.cwd())
    assert "unsafe" in NEVER and "llm" in USER_ONLY


def test_a_resumed_run_keeps_its_own_settings(places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    project, _ = places
    (project / "hipwright.toml").write_text("[optimize]\nbudget = 'not a number'\n")
    assert main(["optimize", "task.py"]) == 2
    assert "--budget" in capsys.readouterr().err
    assert main(["optimize", "task.py", "--resume", "nothing"]) == 2
    assert "--budget" not in capsys.readouterr().err


def test_config_says_where_each_value_comes_from(places: tuple[Path, Path], tmp_path: Path) -> None:
    project, user = places
    user.write_text("[optimize]\nseed = 4\n")
    (project / "hipwright.toml").write_text("[optimize]\nbudget = 7\n")
    with mock.patch.dict("os.environ", {"HIPWRIGHT_OPTIMIZE_WORKERS": "2"}):
        found = one_object(hipwright(project / "deep" / "home", "config", "optimize", "--json").stdout)
    rows = {(row["command"], row["key"]): (row["value"], row["source"]) for row in found["settings"]}
    assert rows["optimize", "budget"] == (7, "project") and rows["optimize", "seed"] == (4, "user")
    assert rows["optimize", "workers"] == ("2", "environment") and rows["optimize", "max_usd"] == (None, "default")
    assert {key for command, key in rows if not command} == {"home", "cache", "outage_seconds"}
    assert [one["kind"] for one in found["files"]] == ["project", "user"]


def test_every_option_of_every_command_can_be_written(places: tuple[Path, Path]) -> None:
    """A user's file with all options that files may set, and the same from the environment."""
    _, user = places
    lines = []
    for command, options in COMMANDS.items():
        lines.append(f"[{command.replace(' ', '.')}]")
        lines += [f"{key.replace('_', '-')} = 'x'" for key in options if key not in NEVER]
    user.write_text("\n".join(lines))
    found = settings(config_files(Path.cwd()), COMMANDS)
    assert len(found) == sum(key not in NEVER for options in COMMANDS.values() for key in options)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers() | st.text(max_size=5), max_size=4))
def test_any_unknown_key_is_bad_input(table: dict[str, Any]) -> None:
    from hipwright.cli.shell.config_file import ConfigFile

    known = {key.replace("-", "_") for key in table} & set(COMMANDS["show"])
    file = ConfigFile("project", Path("x.toml"), {"show": table})
    if table and not known:
        with pytest.raises(BadInput):
            settings([file], COMMANDS)
    elif not table:
        assert [one for one in settings([file], COMMANDS) if one.source == "project"] == []


@pytest.fixture(autouse=True)
def _no_home_set() -> Iterator[None]:
    """General keys of a file go into the environment: what a test sets ends with it."""
    with mock.patch.dict("os.environ"):
        yield
