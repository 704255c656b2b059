"""Runs command lines with their own archive, and finds processes that they left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests import warm

REPO = Path(__file__).parents[2]
EXAMPLES = REPO / "examples"
FILES = REPO / "tests" / "bad_input"


def environment(home: Path) -> dict[str, str]:
    """The environment with this archive and the user's own build cache, as these tests are not about cold builds."""
    return {**os.environ, "HIPWRIGHT_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"}


def hipwright(home: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """One command line, in this process (tests/warm.py)."""
    return warm.hipwright(home.parent, *args, env={"HIPWRIGHT_HOME": str(home)})


def process(home: Path, *args: object, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """One command line as a process, for tests of what it leaves behind."""
    command = [sys.executable, "-m", "hipwright", *map(str, args)]
    return subprocess.run(
        command, env=environment(home), cwd=home.parent, capture_output=True, text=True, timeout=timeout
    )


def one_object(text: str) -> dict[str, Any]:
    """stdout of a `--json` command: exactly one JSON object."""
    value, end = json.JSONDecoder().raw_decode(text)
    assert text[end:].strip() == "" and isinstance(value, dict), text
    return value


def left_behind(home: Path, *, patience: float = 5.0) -> list[str]:
    """Processes that still have this archive in their environment or command line after a while."""
    deadline = time.monotonic() + patience
    while (found := _carrying(str(home).encode())) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _carrying(marker: bytes) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            command = (process / "cmdline").read_bytes()
            if marker in (process / "environ").read_bytes() or marker in command:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found
