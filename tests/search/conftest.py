"""Fixtures of the search's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipwright.archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Any:
    with Archive(tmp_path / "home") as opened:
        yield opened
