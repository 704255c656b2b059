"""`python -m hipwright mcp` with the official SDK's own client over stdio, and with raw lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import anyio
import pytest

from tests.load import Watch

pytest.importorskip("mcp")
from mcp import Client

from tests.mcp.server_process import alive, connected, descendants, gone, parameters, refused, server_of, talk, text_of
from tests.mcp.subjects import MODEL_NEW, PROGRAM, SLOW, UNGUARDED, WRONG


def test_what_needs_no_machine(root: Path, tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(root) as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(listed) == {
                "list_tasks",
                "evaluate_program",
                "profile_program",
                "optimize",
                "start_from",
                "model",
                "explain_failure",
                "best_program",
                "exemplars",
            }
            schema = listed["evaluate_program"].input_schema
            assert schema["type"] == "object" and schema["required"] == ["task", "program"]
            assert all(tool.description for tool in listed.values())

            tasks = await client.call_tool("list_tasks", {})
            assert tasks.structured_content is not None
            assert tasks.structured_content["tasks"] == [
                {"task": "tasks/twice.py", "about": "Twice the input, plus one."}
            ]
            assert text_of(tasks) == "tasks/twice.py: Twice the input, plus one."

            assert "no tool" in (await refused(client, "rm"))["error"]
            assert "required field `program`" in (await refused(client, "evaluate_program", task="x"))["error"]
            assert "unknown field" in (await refused(client, "list_tasks", other=1))["error"]
            assert "no tasks in" in (await refused(client, "list_tasks", folder="big"))["error"]
            assert "no such task" in (await refused(client, "exemplars", task="tasks/none.py"))["error"]
            missing = await refused(client, "explain_failure")
            assert missing["hint"] == "call evaluate_program first" and missing["whose"] == "bad input"
            empty = await refused(client, "best_program", task="tasks/twice.py")
            assert "no archive" in empty["error"] and "hipwright optimize" in empty["hint"]

            outside = tmp_path / "outside.py"
            for path in ("../outside.py", str(outside), "tasks/../../outside.py", "tasks/link.py", "/etc/passwd"):
                for tool in ("evaluate_program", "profile_program"):
                    content = await refused(client, tool, task=path, program=PROGRAM)
                    assert "is outside" in content["error"] and "--root" in content["hint"]
                assert "is outside" in (await refused(client, "best_program", task=path))["error"]
            assert "is outside" in (await refused(client, "list_tasks", folder=".."))["error"]
            assert "no path" in (await refused(client, "list_tasks", folder="a\0b"))["error"]

    talk(work)


@pytest.mark.slow
def test_programs_are_judged_explained_and_profiled_by_one_warm_machine(root: Path) -> None:
    said: list[tuple[float, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, message))

    async def work() -> None:
        async with connected(root) as client:
            call = {"task": "tasks/twice.py", "program": PROGRAM, "knobs": {"BLOCK": 64}}
            good = await client.call_tool("evaluate_program", call, progress_callback=heard)
            content = good.structured_content
            assert content is not None and not good.is_error, text_of(good)
            assert content["status"] == "pass" and content["coverage"] == 1.0 and content["evaluation"] == "e1"
            assert content["targets"]["cpu"]["verdict"]["status"] == "pass"
            assert content["targets"]["gfx942"]["estimate"]["microseconds"] == content["score"]
            assert any("gfx942" in line for line in content["not_measured"])
            assert "by static estimate" in text_of(good)
            first = descendants(server_of())

            profile = await client.call_tool("profile_program", call)
            figures = profile.structured_content
            assert figures is not None and figures["kind"] == "build" and figures["evaluation"] == "e1"
            (kernel,) = figures["targets"]["gfx942"]["build"]
            assert kernel["name"] == "twice" and kernel["vgpr"] > 0 and kernel["instructions"]["vmem_load"] >= 1
            assert figures["bottleneck"]["text" if "text" in figures["bottleneck"] else "what"]
            assert "VGPRs" in text_of(profile) and "bottleneck: " in text_of(profile)
            assert "nothing was measured" in text_of(profile)

            bad = await client.call_tool("evaluate_program", {**call, "program": WRONG})
            assert bad.structured_content is not None and not bad.is_error  # a verdict is no error of the tool
            assert bad.structured_content["status"] == "wrong_value" and bad.structured_content["evaluation"] == "e2"
            why = await client.call_tool("explain_failure", {})
            assert why.structured_content is not None
            assert why.structured_content["fault"] == "candidate" and why.structured_content["evaluation"] == "e2"
            assert "expected" in text_of(why) and "fix: " in text_of(why)

            await client.call_tool("evaluate_program", {**call, "program": UNGUARDED})
            why = await client.call_tool("explain_failure", {"evaluation": "e3"})
            assert why.structured_content is not None
            assert why.structured_content["status"] == "out_of_bounds"
            assert why.structured_content["line"] == 5 and "y[i] = x[i]" in why.structured_content["source"]

            broken = await client.call_tool("evaluate_program", {**call, "program": "def forward(self, x): import os"})
            assert broken.structured_content is not None and broken.structured_content["status"] == "parse_error"

            other = await client.call_tool("evaluate_program", {"task": "tasks/twice.py", "program": MODEL_NEW})
            assert other.structured_content is not None and other.structured_content["lane"] == "modelnew"
            assert other.structured_content["evaluation"] == "e5"
            assert len((await client.list_tools()).tools) == 9  # its output did not reach the protocol
            assert first & descendants(server_of()), "the machine was not kept warm"
            await judge_two_at_once(client)
            await cancel_one_and_judge_another(client)

    talk(work)
    assert said and [at for at, _ in said] == sorted(at for at, _ in said)
    assert any("opening the task" in (message or "") for _, message in said)
    assert any("verifying" in (message or "") for _, message in said)


async def judge_two_at_once(client: Client) -> None:
    """They run one after the other, and the one that waits is told."""
    said, names = list[str](), list[str]()
    running = anyio.Event()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")
        if "verifying" in said[-1]:
            running.set()

    async def judge(program: str) -> None:
        call = {"task": "tasks/twice.py", "program": program}
        result = await client.call_tool("evaluate_program", call, progress_callback=heard)
        assert result.structured_content is not None
        names.append(result.structured_content["evaluation"])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(judge, PROGRAM.replace("2.0f", "2.00f"))  # not in the build cache: it takes a while
        await running.wait()
        tasks.start_soon(judge, "no program")
    assert names == ["e6", "e7"]
    assert "waiting for the evaluation before this one" in said


async def cancel_one_and_judge_another(client: Client) -> None:
    """A cancelled evaluation ends, leaves nothing, and the next one is judged by a new machine."""
    call = {"task": "tasks/twice.py", "program": SLOW}
    running = anyio.Event()
    before = descendants(server_of())

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        if "verifying" in (message or ""):
            running.set()

    async def slow() -> None:
        await client.call_tool("evaluate_program", call, progress_callback=heard)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(slow)
        await running.wait()
        tasks.cancel_scope.cancel()
    good = await client.call_tool("evaluate_program", {**call, "program": PROGRAM})
    assert good.structured_content is not None and good.structured_content["status"] == "pass"
    assert good.structured_content["evaluation"] == "e8"
    assert gone(before, 5)


@pytest.mark.parametrize(
    ("how", "stage"), [("stdin ends", "verifying"), ("SIGTERM", "opening the task"), ("SIGKILL", "opening the task")]
)
def test_no_process_outlives_the_server(root: Path, how: str, stage: str) -> None:
    setting = parameters(root)
    environment = {**os.environ, **(setting.env or {})}
    with subprocess.Popen(
        [setting.command, *setting.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        call = {"name": "evaluate_program", "arguments": {"task": "tasks/twice.py", "program": SLOW}}
        asked = {**call, "_meta": {"progressToken": 1}}
        for message in (
            {"id": 1, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": asked},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
        lines = []
        for line in server.stdout:
            lines.append(json.loads(line))  # nothing but the protocol
            if stage in json.dumps(lines[-1]):
                break
        assert all(message["jsonrpc"] == "2.0" for message in lines)
        deadline = time.monotonic() + 60
        while not (born := descendants(server.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert born, "no contained process was running"
        if how == "stdin ends":
            server.stdin.close()
        else:
            server.send_signal(signal.Signals[how])
        with Watch() as watch:
            code = server.wait(60)
        assert watch.seconds < 10
        assert code == {"stdin ends": 0, "SIGTERM": 143, "SIGKILL": -9}[how]
        assert gone(born, 20), f"left behind: {[pid for pid in born if alive(pid)]}"
