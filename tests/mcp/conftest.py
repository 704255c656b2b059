"""A folder that the MCP server may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.subjects import TASK


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one task file, a module that is none, an empty folder and a link that leads outside."""
    folder = tmp_path / "root"
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / "twice.py").write_text(TASK)
    (folder / "tasks" / "helper.py").write_text("X = 1\n")
    (folder / "big").mkdir()
    (tmp_path / "outside.py").write_text(TASK)
    (folder / "tasks" / "link.py").symlink_to(tmp_path / "outside.py")
    return folder
