"""`hipwright fleet` and `--fleet`: wrong input is one line, without a cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, hipwright

from hipwright.fleet.cluster import NodeStart, start_command
from tests.fleet.conftest import needs_ray

BAD = [
    # command, exit code, in the line
    (("fleet", "status"), 2, "which fleet?"),
    (("fleet", "drain", "one"), 2, "which fleet?"),
    (("bench", EXAMPLES, "--place", "gfx942", "--target", "cpu"), 2, "--place"),
    (("bench", EXAMPLES, "--target", "cpu", "--fleet", "x:1", "--llm", "openai:x"), 2, "--fleet judges programs"),
    (("bench", EXAMPLES, "--target", "cpu", "--fleet", "x:1", "--gpus", "0"), 2, "--gpus numbers"),
]


@pytest.mark.parametrize(("args", "code", "says"), BAD, ids=[" ".join(map(str, row[0][:2])) for row in BAD])
def test_wrong_input_is_one_line(tmp_path: Path, args: tuple[str, ...], code: int, says: str) -> None:
    done = hipwright(tmp_path / "home", *args)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == code and len(lines) == 1 and says in lines[0], done.stderr


@needs_ray
def test_an_address_where_nothing_listens_is_said_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = hipwright(tmp_path / "home", "fleet", "status", "--address", f"127.0.0.1:{port}")
    assert done.returncode == 3 and f"no fleet answers at 127.0.0.1:{port}" in done.stderr
    joins = hipwright(tmp_path / "home", "fleet", "up", "--address", "nowhere")
    assert joins.returncode == 2 and "not an address of a fleet" in joins.stderr


def test_a_node_starts_with_its_seats_and_labels() -> None:
    command = start_command(NodeStart("head:6379", "10.0.0.2", name="node 7", cpu_seats=3), [])
    assert "--address=head:6379" in command and '--resources={"cpu": 3}' in command
    assert "--labels=hipwright.io/name=node-7" in command and "--head" not in command
    assert {"--head", "--port=7001"} <= set(start_command(NodeStart(port=7001), []))
