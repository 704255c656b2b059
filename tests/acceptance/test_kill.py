"""kill -9 at random moments of a real search: nothing is lost, nothing is evaluated twice, the export is the same."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "bias_gelu.py"
BUDGET = 6
KILLS = int(os.environ.get("HIPWRIGHT_TEST_KILLS", "2"))
SEARCH = ["--budget", str(BUDGET), "--seed", "7", "--policy", "islands", "--json"]


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "hipwright", *args]


def environment(home: Path) -> dict[str, str]:
    # one build cache per archive, so that a resumed run is not helped by the uninterrupted one
    return {**os.environ, "HIPWRIGHT_HOME": str(home), "HIPWRIGHT_CACHE": str(home / "cache")}


def run(home: Path, *args: str) -> str:
    done = subprocess.run(command(*args), env=environment(home), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(home: Path) -> list[tuple[int, str]]:
    """(proposal number, program) of every evaluation that is durable in the archive."""
    database = home / "archive.sqlite"
    if not database.exists():
        return []
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        try:
            rows = db.execute("select number, data from events where kind = 'evaluated' order by seq").fetchall()
        except sqlite3.OperationalError:  # killed before the schema was written
            return []
    return [(number, json.loads(data)["evaluation"]["program"]) for number, data in rows]


def orphans(home: Path) -> list[str]:
    """Processes that still carry this test's archive in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(home).encode() in entry.read_bytes():
                found.append((entry.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_killed_runs_resume_to_the_same_export(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    start = time.monotonic()
    run(whole, "optimize", str(EXAMPLE), "--out", str(whole / "out"), *SEARCH)
    duration = time.monotonic() - start
    expected = run(whole, "export", "latest", "--canonical")

    rng, home, seen = random.Random(20), tmp_path / "killed", []
    for _ in range(KILLS):
        resume = ["--resume", "latest"] if completed(home) else []
        args = command("optimize", str(EXAMPLE), "--out", str(home / "out"), *SEARCH, *resume)
        child = subprocess.Popen(args, env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(rng.uniform(0.3, 1.0) * duration)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
        now = completed(home)
        assert now[: len(seen)] == seen, "a completed evaluation was lost"
        assert len({number for number, _ in now}) == len(now), "an evaluation was repeated"
        seen = now
    resume = ["--resume", "latest"] if completed(home) else []
    run(home, "optimize", str(EXAMPLE), "--out", str(home / "out"), *SEARCH, *resume)
    assert completed(home)[: len(seen)] == seen
    assert run(home, "export", "latest", "--canonical") == expected
    deadline = time.monotonic() + 5
    while orphans(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert orphans(home) == []
