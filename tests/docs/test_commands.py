"""Every `$ hipwright ...` line of the README and of docs/ is run, in order, a file at a time (tests/warm.py).

A block is left out when the line before it is `<!-- needs: gpu -->` (or key, download), and may say `<!-- exit: 1 -->`.
One below `<!-- file: NAME -->` is written to that file first. Tests of other pages run Python (test_library_page.py).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hipwright import config
from tests import warm

REPO = Path(__file__).parents[2]
PAGES = [REPO / "README.md", *sorted((REPO / "docs").glob("*.md")), *sorted((REPO / "docs/tutorials").glob("*.md"))]
BLOCK = re.compile(r"(?:<!--\s*(?P<mark>[^>]*?)\s*-->\n)?```(?:console|bash)\n(?P<body>.*?)```", re.DOTALL)
FILE = re.compile(r"<!--\s*file: (?P<name>[\w.]+)\s*-->\n```\w+\n(?P<body>.*?)```", re.DOTALL)


def commands(page: Path) -> list[tuple[str, int]]:
    """(command line, expected exit code) of every block that can run here."""
    found = []
    for block in BLOCK.finditer(page.read_text()):
        mark = block["mark"] or ""
        if mark.startswith("needs:"):
            continue
        code = int(mark.removeprefix("exit:")) if mark.startswith("exit:") else 0
        lines = block["body"].replace("\\\n", " ").splitlines()
        found += [(line[2:].strip(), code) for line in lines if line.startswith("$ hipwright")]
    return found


def files(page: Path) -> dict[str, str]:
    """The files that a page writes, by name."""
    return {found["name"]: found["body"] for found in FILE.finditer(page.read_text())}


RUNNABLE = [page for page in PAGES if commands(page)]


def test_the_readme_shows_the_main_commands() -> None:
    shown = {line.split()[1] for line, _ in commands(REPO / "README.md")}
    assert {"doctor", "optimize", "eval", "runs", "show"} <= shown


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=[page.stem for page in RUNNABLE])
def test_commands_work_as_shown(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(REPO / "examples")
    for name, body in files(page).items():
        (tmp_path / name).write_text(body)
    cache = str(config.cache_dir())  # the user's own, as for all tests of the command line
    env = {"HOME": str(tmp_path), "HIPWRIGHT_HOME": str(tmp_path / "archive"), "HIPWRIGHT_CACHE": cache}
    for line, code in commands(page):
        done = warm.hipwright(tmp_path, *shlex.split(line, comments=True)[1:], env=env)
        assert done.returncode == code, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    if page.name == "README.md":  # the kernel that it shows
        (kernel,) = re.findall(r"```cpp\n(.*?)```", page.read_text(), re.DOTALL)
        assert kernel in (tmp_path / "out/gate/program.py").read_text()


def linked(page: Path) -> list[Path]:
    """The files that a page links to."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    return [page.parent / target for target in targets if not re.match(r"[a-z]+:", target)]


LINKING = [*sorted(REPO.glob("*.md")), *sorted((REPO / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=[str(page.relative_to(REPO)) for page in LINKING])
def test_links_lead_somewhere(page: Path) -> None:
    assert [str(target) for target in linked(page) if not target.exists()] == []


def test_the_map_of_pages_links_every_page() -> None:
    index = REPO / "docs/index.md"
    found = {target.resolve() for target in linked(index)} | {index}
    assert [page.name for page in sorted((REPO / "docs").glob("*.md")) if page not in found] == []
    assert index in {target.resolve() for target in linked(REPO / "README.md")}
