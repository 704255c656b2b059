"""`hipwright view` as a command: its one line or object, its errors, and its end."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.view.view_sample import sample_archive


def view(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return warm.hipwright(folder, "view", *args, env={"HIPWRIGHT_HOME": str(folder / "home"), **env})


def test_it_prints_where_it_listens(tmp_path: Path) -> None:
    sample_archive(tmp_path / "home", proposals=1)
    done = view(tmp_path, "--port", "0", "--max-minutes", "0")
    assert done.returncode == 0 and done.stdout.startswith("http://127.0.0.1:")
    found = json.loads(view(tmp_path, str(tmp_path / "home"), "--port", "0", "--max-minutes", "0", "--json").stdout)
    assert found["archive"] == str(tmp_path / "home") and found["token"] is None


def test_off_the_loopback_there_is_a_token(tmp_path: Path) -> None:
    sample_archive(tmp_path / "home", proposals=1)
    args = ("--host", "0.0.0.0", "--port", "0", "--max-minutes", "0", "--json")
    made, given = (
        json.loads(view(tmp_path, *args).stdout),
        json.loads(view(tmp_path, *args, HIPWRIGHT_VIEW_TOKEN="mine").stdout),
    )
    assert len(made["token"]) >= 24 and made["url"].endswith(f"?token={made['token']}")
    assert given["token"] == "mine"


def test_errors_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = view(tmp_path, "--port", "0")
    assert none.returncode == 2 and none.stderr.startswith("error: bad input: no archive in ")
    sample_archive(tmp_path / "home", proposals=1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = view(tmp_path, "--port", str(taken.getsockname()[1]))
    assert busy.returncode == 2 and "cannot listen at 127.0.0.1:" in busy.stderr and "--port 0" in busy.stderr
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else known(name))
    missing = view(tmp_path)
    assert missing.returncode == 3 and "needs uvicorn" in missing.stderr
    assert "pip install 'hipwright[view]'" in missing.stderr


def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    sample_archive(tmp_path / "home", proposals=1)
    command = [sys.executable, "-m", "hipwright", "view", str(tmp_path / "home"), "--port", "0"]
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.status == 200 and b"r1" in answer.read()
    stream = urllib.request.urlopen(f"{url}events", timeout=20)
    assert stream.readline() == b"event: change\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130, "an open stream does not hold it"
    assert "stopped" in process.communicate()[1]
    stream.close()
