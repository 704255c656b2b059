"""The site of the documentation is built without a warning, and its hook does what it says (scripts/site.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from hipwright.cli.main import app

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (the extra `docs`)"),
]


def build(folder: Path, out: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(
        argv, cwd=folder, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )


def names(command: object, name: str) -> list[str]:
    return [
        name,
        *(found for key, one in getattr(command, "commands", {}).items() for found in names(one, f"{name} {key}")),
    ]


def test_the_site_has_every_page_and_every_command(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr[-2000:]
    commands = (tmp_path / "site/reference/commands.html").read_text()
    for name in names(typer.main.get_command(app), "hipwright"):
        assert f"<code>{name}</code>" in commands
    assert "CONTRIBUTING.html#add-a-template" in (tmp_path / "site/engine.html").read_text()
    assert 'id="hipwright.api.library.optimize"' in (tmp_path / "site/reference/python.html").read_text()


def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    """Also one to a file outside of docs/, and one to a heading that is not there."""
    copy = tmp_path / "copy"
    for name in ("docs", "scripts", "data", "src"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("tests", "benchmarks", "examples", "LICENSE"):
        (copy / name).symlink_to(ROOT / name)
    page = copy / "docs/estimate.md"
    text = page.read_text()
    links = ("../nowhere.txt", "engine.md#nowhere", "not-here.md")
    page.write_text(text + "".join(f"\n[a link]({link})\n" for link in links))
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    for link in ("repository/nowhere.txt", "#nowhere", "not-here.md"):
        assert link in done.stderr
