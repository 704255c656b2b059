"""The site of the documentation is built without a warning, and its hook does what it says (scripts/docs_site.py)."""

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


LINKS = ("../nowhere.txt", "engine.md#nowhere", "not-here.md")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """(folder of the site, its build): of the pages, with three links in one that lead nowhere.

    A strict build writes the whole site, counts its warnings and then fails, so one build shows both.
    """
    copy = tmp_path_factory.mktemp("site") / "copy"
    for name in ("docs", "scripts", "data", "src"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(ROOT / name, copy / name)
    for name in ("tests", "benchmarks", "examples", "LICENSE"):
        (copy / name).symlink_to(ROOT / name)
    with (copy / "docs/estimate.md").open("a", encoding="utf-8") as page:
        page.write("".join(f"\n[a link]({link})\n" for link in LINKS))
    return copy.parent / "site", build(copy, copy.parent / "site")


def test_the_site_has_every_page_and_every_command(built: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    site, _ = built
    commands = (site / "reference/commands.html").read_text()
    for name in names(typer.main.get_command(app), "hipwright"):
        assert f"<code>{name}</code>" in commands
    assert "CONTRIBUTING.html#add-a-template" in (site / "engine.html").read_text()
    assert 'id="hipwright.api.library.optimize"' in (site / "reference/python.html").read_text()


def test_links_that_lead_nowhere_and_nothing_else_fail(built: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Also one to a file outside of docs/, and one to a heading that is not there."""
    _, done = built
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert len(said) == len(LINKS), done.stderr[-3000:]
    assert f"{len(LINKS)} warnings in strict mode" in done.stdout + done.stderr
    for link in ("repository/nowhere.txt", "#nowhere", "not-here.md"):
        assert any(link in line for line in said), link
