"""Recorded conversations are replayed: no network, the same programs, the same verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_tools import FILES, hipwright, one_object

from hipwright.archive import Archive, read_log

pytestmark = pytest.mark.slow
RECORDINGS = Path(__file__).parents[1] / "llm" / "recordings"


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_recording_gives_the_same_programs_and_verdicts(tmp_path: Path, name: str) -> None:
    """If a prompt was changed on purpose: `.venv/bin/python -m tests.llm.record`."""
    recording = RECORDINGS / f"{name}.jsonl"
    events = [json.loads(line) for line in recording.read_text().splitlines()]
    done = hipwright(tmp_path / "home", "optimize", FILES / "scale.py", "--replay", recording, "--json")
    assert done.returncode == 0, done.stderr
    assert one_object(done.stdout)["models"]["calls"] == sum(e["kind"] == "call_settled" for e in events)
    with Archive(tmp_path / "home", create=False) as archive:
        log = read_log(archive.events(archive.run("latest").id))
    assert {n: p.program for n, p in log.proposed.items()} == {
        e["number"]: e["data"].get("program", "") for e in events if e["kind"] == "proposed"
    }
    assert {n: e.evaluation.status for n, e in log.evaluated.items()} == {
        e["number"]: e["data"]["evaluation"]["status"] for e in events if e["kind"] == "evaluated"
    }
