"""The wheel and the sdist are whole: they pass twine's check, and what is installed from them works alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TOOLS = ("build", "twine", "hatchling")
MISSING = [name for name in TOOLS if find_spec(name) is None]
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}, of the extra `test`")
COMMAND = (
    "import sys, hipwright; assert hipwright.__file__.startswith(sys.prefix), hipwright.__file__;"
    "from hipwright.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


def said(argv: list[str], folder: Path, env: Mapping[str, str] | None = None) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist); the wheel is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    said([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], folder)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def environment(folder: Path, wheel: Path, *more: str) -> Path:
    """A new environment with the wheel; returns its Python."""
    said([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder.parent)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    said([*pip, *more, str(wheel)], folder.parent)
    return python


def outside(folder: Path) -> dict[str, str]:
    """The environment of a user who has no checkout."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HIPWRIGHT_HOME")}
    return {**kept, "HOME": str(folder), "HIPWRIGHT_HOME": str(folder / "archive")}


@needs_tools
@pytest.mark.slow
def test_both_are_whole(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    said([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], wheel.parent)
    listed = set(zipfile.ZipFile(wheel).namelist())
    tracked = said(["git", "ls-files", "src/hipwright"], ROOT).split()
    assert [path for path in tracked if path.removeprefix("src/") not in listed] == []
    assert not [path for path in listed if path.startswith(("tests/", "benchmarks/", "docs/"))]
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "docs/pictures/view.png", "tests/test_packages.py"} <= inside


@needs_tools
@pytest.mark.slow
def test_the_wheel_works_outside_of_the_repository(built: tuple[Path, Path], tmp_path: Path) -> None:
    """With the packages of this environment, of which a .pth file is read after the wheel's own folder."""
    python = environment(tmp_path / "env", built[0], "--no-deps")
    (own,) = (tmp_path / "env").glob("lib/python*/site-packages")
    others = sysconfig.get_path("purelib")
    (own / "zz_dependencies.pth").write_text(f"import site; site.addsitedir({others!r})\n", encoding="utf-8")
    (tmp_path / "bias.py").write_text((ROOT / "examples/bias_gelu.py").read_text(), encoding="utf-8")
    argv = [str(python), "-c", COMMAND, "optimize", "bias.py", "--budget", "1", "--target", "gfx942", "--target", "cpu"]
    found = json.loads(said([*argv, "--out", "out", "--json"], tmp_path, outside(tmp_path)))
    assert found["status"] == "pass" and "kernels" not in found["program"]
    assert (tmp_path / "out/report.html").is_file()


@needs_tools
@pytest.mark.exhaustive
def test_the_readmes_lines_work_in_a_new_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The wheel with its extra `cpu`, nothing of this environment: a verified program and a module that answers."""
    python = environment(tmp_path / "env", Path(f"{built[0]}[cpu]"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```python\n(.*?)```", text[text.index("## From Python") :], re.DOTALL)[:1]
    checks = f"assert result.passed and y.shape == (16, 128) and hipwright.__file__.startswith({str(tmp_path)!r})"
    assert "True" in said([str(python), "-c", f"{lines}\n{checks}"], tmp_path, outside(tmp_path))


@needs_tools
@pytest.mark.exhaustive
def test_the_wheel_installs_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    """With its dependencies alone: commands that need no torch work, others say that it is missing."""
    python = environment(tmp_path / "env", built[0])
    env = outside(tmp_path)
    hipwright = str(python.parent / "hipwright")
    assert said([hipwright, "--version"], tmp_path, env).startswith("hipwright ")
    assert "optimize" in said([hipwright, "--help"], tmp_path, env)
    assert json.loads(said([hipwright, "runs", "--json"], tmp_path, env))["runs"] == []
    (tmp_path / "bias.py").write_text((ROOT / "examples/bias_gelu.py").read_text(), encoding="utf-8")
    done = subprocess.run([hipwright, "optimize", "bias.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode in (2, 3) and "torch" in done.stderr and "Traceback" not in done.stderr


def test_the_containers_lines_are_of_this_repository() -> None:
    """No container engine is needed: the extras and packages that the file names exist, and no root runs candidates."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"hipwright\[([\w,]+)\] @", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "bubblewrap" in text and "bubblewrap)" in (ROOT / "scripts/system-deps.sh").read_text(encoding="utf-8")
    python = tuple(map(int, re.findall(r"python:(\d+)\.(\d+)-slim", text)[0]))
    assert python >= tuple(map(int, re.findall(r"\d+", project["requires-python"])))
    assert (
        text.index("USER hipwright") < text.index("ENTRYPOINT") and ".venv*" in (ROOT / ".containerignore").read_text()
    )


def test_issue_forms_are_forms() -> None:
    """Each has a name, a description and fields with labels; commands that they name exist."""
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) >= 4
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.stem == "config":
            continue
        assert form["name"] and form["description"] and form["labels"]
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert fields and all(field["attributes"]["label"] for field in fields)
        assert len({field["id"] for field in fields}) == len(fields)
