"""The service as a process: SIGTERM while it judges, and connections on which no request comes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hipwright.records import Program
from hipwright.train.judging.remote import RemoteJudge
from hipwright.train.records import TrainingProblem
from hipwright.train.service.limits import ServiceLimits

ROOT = Path(__file__).parents[3]
TOKEN = "a long word"
TASK = TrainingProblem(name="row_sum", source="import torch")


@contextmanager
def service(limits: ServiceLimits, workers: int = 4) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = ROOT / "benchmarks/fleet/service_process.py"
    process = subprocess.Popen(
        [sys.executable, script, str(port), TOKEN, str(workers), limits.to_json()],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        yield process, port
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
def test_sigterm_ends_after_what_was_let_in_is_answered() -> None:
    with service(ServiceLimits(drain_s=20)) as (process, port):
        judges = [RemoteJudge(f"http://127.0.0.1:{port}", token=TOKEN, attempts=1) for _ in range(4)]
        for judge in judges:
            judge.__enter__()
        found = [judge.submit(TASK, Program(text=f"1.0 {n}")) for n, judge in enumerate(judges)]
        time.sleep(0.4)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
        assert [one.result(timeout=20).status for one in found] == ["pass"] * 4
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)
        for judge in judges:
            judge.__exit__(None, None, None)


@pytest.mark.slow
def test_a_connection_without_a_request_is_closed_and_a_full_service_is_waited_for() -> None:
    with service(ServiceLimits(header_s=0.5, queue=2), workers=2) as (_, port):
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"POST /judge HTTP/1.1\r\nHost: x\r\n")
        with RemoteJudge(f"http://127.0.0.1:{port}", token=TOKEN, attempts=1) as judge:
            found = [judge.submit(TASK, Program(text=f"0.05 {n}")) for n in range(6)]
            assert [one.result(timeout=30).status for one in found] == ["pass"] * 6
        slow.settimeout(10)
        with suppress(ConnectionResetError):
            assert slow.recv(1) == b""
        slow.close()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        page = urllib.request.urlopen(request, timeout=5).read().decode()
        assert 'hipwright_refused_total{reason="no header"} 1' in page and 'reason="queue"' in page
        assert json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read())["status"]
